// What is wider than the screen: a table of text becomes a list on a phone, other tables and formulas scroll under a line that says so,
// and a picture that was shrunk can be opened.
const PHONE = 736;

function sign(box, wide, text) {
  const line = box.previousElementSibling?.matches("p.more-columns") ? box.previousElementSibling : null;
  box.classList.toggle("scrolls", wide);
  if (wide && !line) {
    const hint = document.createElement("p");
    hint.className = "more-columns";
    hint.textContent = text;
    box.before(hint);
  } else if (!wide && line) {
    line.remove();
  }
}

const isWide = (box) => box.scrollWidth > box.clientWidth + 1;

function fit() {
  for (const box of document.querySelectorAll("div.content .table-wrapper")) {
    const table = box.querySelector("table");
    const names = [...table.querySelectorAll("thead th")].map((name) => name.textContent);
    const prose = [...table.querySelectorAll("td")].some((cell) => cell.textContent.length > 50);
    table.classList.remove("list");
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.children].forEach((cell, column) => cell.setAttribute("data-name", names[column] ?? ""));
    }
    table.classList.toggle("list", prose && innerWidth < PHONE && isWide(box));
    sign(box, isWide(box), "More columns: scroll the table to the right →");
  }
  for (const box of document.querySelectorAll("div.formula")) sign(box, isWide(box), "Scroll the formula to the right →");
  for (const box of document.querySelectorAll("span.formula")) {
    box.classList.remove("scrolls");
    sign(box, box.getBoundingClientRect().width > box.parentElement.clientWidth, "Scroll the formula to the right →");
  }
  for (const picture of document.querySelectorAll("article img")) {
    const link = picture.closest("a.picture");
    if (!link && !picture.closest("a") && picture.naturalWidth > 1.5 * picture.clientWidth) {
      const opens = Object.assign(document.createElement("a"), { className: "picture", href: picture.src, title: "Open in full size" });
      picture.replaceWith(opens);
      opens.append(picture);
    }
  }
}
addEventListener("load", fit);
addEventListener("resize", fit);
