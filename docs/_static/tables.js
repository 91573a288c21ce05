// Says above a table that it has columns to the right of the screen.
function markWideTables() {
  for (const wrapper of document.querySelectorAll("div.content .table-wrapper")) {
    const wide = wrapper.scrollWidth > wrapper.clientWidth + 1;
    const hint = wrapper.previousElementSibling?.matches("p.more-columns") ? wrapper.previousElementSibling : null;
    wrapper.classList.toggle("scrolls", wide);
    if (wide && !hint) {
      const line = document.createElement("p");
      line.className = "more-columns";
      line.textContent = "More columns: scroll the table to the right →";
      wrapper.before(line);
    } else if (!wide && hint) {
      hint.remove();
    }
  }
}
addEventListener("load", markWideTables);
addEventListener("resize", markWideTables);
