# The product in one image: `docker run llmgw worker`, `router`, `agent`, `status` and the rest.

FROM python:3.12-slim-bookworm AS build
RUN python -m venv /opt/build && python -m venv --without-pip /opt/llmgw
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all:
WORKDIR /src
# The locks first: a change of code reuses these layers.
COPY requirements/build.txt requirements/run.txt requirements/
RUN /opt/build/bin/pip install --require-hashes -r requirements/build.txt \
 && /opt/build/bin/pip --python /opt/llmgw/bin/python install --require-hashes -r requirements/run.txt
COPY . .
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
 && /opt/build/bin/pip --python /opt/llmgw/bin/python install --no-deps /dist/*.whl

FROM python:3.12-slim-bookworm
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/llmgw llmgw
COPY --from=build /opt/llmgw /opt/llmgw
ENV PATH=/opt/llmgw/bin:$PATH PYTHONUNBUFFERED=1
USER llmgw
WORKDIR /var/lib/llmgw
ENTRYPOINT ["llmgw"]
CMD ["--help"]
