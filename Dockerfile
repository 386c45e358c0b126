# The image of the controller: `docker build --tag vmherd .`
#
# The first stage installs everything into /app with pip and setuptools. The second stage has Python and /app, but no
# pip. Running it needs no shell. All versions are pinned, and packages also by their hashes. With SOURCE_DATE_EPOCH, the
# compiled modules contain no times, so that each build gives the same bytes.

ARG PYTHON_IMAGE=python:3.14.7-slim-trixie@sha256:83c1cebb322d099ac9e3a3a532ba74b0146d702838b25e4c75c02fa81ffeb910

FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    SOURCE_DATE_EPOCH=315532800
WORKDIR /src

# Files that rarely change come first, so that their layers stay in the build cache.
COPY .ci/requirements-build.txt .ci/requirements-run.txt ./
RUN python -m venv /build && \
    /build/bin/python -m pip install --require-hashes --only-binary :all: --requirement requirements-build.txt
RUN python -m venv --without-pip /app && \
    /build/bin/python -m pip --python /app/bin/python install \
        --require-hashes --only-binary :all: --requirement requirements-run.txt

# The controller does not need the sandbox.
COPY pyproject.toml README.md LICENSE ./
COPY informers informers
COPY conformance conformance
COPY controller controller
COPY plugin plugin
RUN /build/bin/python -m pip wheel --no-deps --no-build-isolation --no-index --wheel-dir dist . && \
    /build/bin/python -m pip --python /app/bin/python install --no-deps --no-index dist/*.whl

FROM ${PYTHON_IMAGE}
# `make manifests` copies the version from pyproject.toml.
ARG VERSION=0.1.0
ARG REVISION=""
LABEL org.opencontainers.image.title="vmherd" \
      org.opencontainers.image.description="A replica controller for virtual machines on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN python -m pip uninstall --yes pip
COPY --from=build /app /app
ENV PATH=/app/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    VMHERD_REVISION=${REVISION}
# A numeric user: Kubernetes can then verify that it is not root.
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["vmherd"]
CMD ["run"]
