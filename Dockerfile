# The package with the simulators, on a processor. See docs/installation.md.
FROM python:3.11-slim
# Debian removes old versions, so that a pinned one would soon fail.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libegl1 libegl-mesa0 libgl1-mesa-dri \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 user
ENV MUJOCO_GL=egl UV_NO_CACHE=1 UV_SYSTEM_PYTHON=1 UV_TORCH_BACKEND=cpu
WORKDIR /home/user/sb3_clearning
COPY setup.cfg pyproject.toml constraints.txt MANIFEST.in README.md LICENSE ./
COPY hyperparams hyperparams
COPY zoo_configs zoo_configs
COPY sb3_clearning sb3_clearning
# uv chooses the build of torch without CUDA (UV_TORCH_BACKEND), which is smaller by gigabytes.
RUN pip install --no-cache-dir uv==0.13.8 \
    && uv pip install --constraint constraints.txt ".[envs,zoo,extra]"
COPY examples examples
USER 1000
WORKDIR /home/user
CMD ["python", "-m", "sb3_clearning.experiments", "demo"]
