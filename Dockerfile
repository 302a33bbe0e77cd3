# The environment of requirements.lock for a CPU:
#   docker build -t aesjax . && docker run --rm aesjax
#   docker run --rm -v "$PWD/runs:/aesjax/runs" aesjax .venv/bin/aesjax run --preset quick --out runs/first
FROM python:3.11-slim

# MuJoCo renders videos without a display by OSMesa.
RUN apt-get update \
    && apt-get install -y --no-install-recommends make gcc libc6-dev libosmesa6 \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /aesjax
COPY . .
RUN make setup
CMD ["make", "test-smoke"]
