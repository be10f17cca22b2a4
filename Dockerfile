# The gateway in a container: docs/guide/docker.md
FROM python:3.13-slim-trixie AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist . \
 && python -m venv /opt/hermes \
 && /opt/hermes/bin/pip install --no-cache-dir -c constraints.txt "$(echo /dist/*.whl)[gateway,backup]"

FROM python:3.13-slim-trixie
# git takes checkpoints of workspaces; bubblewrap confines commands where the host allows it.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends bubblewrap git \
 && rm -rf /var/lib/apt/lists/* \
 && install --directory --mode=1777 /data
COPY --from=build /opt/hermes /opt/hermes
# Everything that changes is below /data, which any user of the container may write.
ENV PATH=/opt/hermes/bin:$PATH HOME=/data HERMES_HOME=/data/hermes PYTHONDONTWRITEBYTECODE=1
WORKDIR /data
VOLUME /data
USER 10001:10001
# 4: it runs without one of its platforms, which a restart does not fix.
HEALTHCHECK --interval=30s --timeout=20s --start-period=60s --retries=3 \
  CMD hermes gateway status > /dev/null 2>&1 || [ $? -eq 4 ]
ENTRYPOINT ["hermes"]
CMD ["gateway", "run"]
