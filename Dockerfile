# CPU:         docker build -t fphys .                            docker run --rm fphys run swing-up
# NVIDIA GPU:  docker build -t fphys:cuda --build-arg EXTRAS=cuda,view .
#              docker run --rm --gpus all fphys:cuda doctor       (driver 580 or newer, NVIDIA's container toolkit)
# The viewer:  docker run --rm -p 127.0.0.1:8080:8080 fphys view ant --live --host 0.0.0.0
FROM python:3.12-slim-bookworm

ARG EXTRAS=view
ENV MUJOCO_GL=egl \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libegl1 libegl-mesa0 libgl1-mesa-dri \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY kernels kernels
COPY fphys fphys
RUN pip install --no-cache-dir ".[${EXTRAS}]"

RUN useradd --create-home --home-dir /fphys fphys
USER fphys
WORKDIR /fphys
ENTRYPOINT ["fphys"]
CMD ["doctor"]
