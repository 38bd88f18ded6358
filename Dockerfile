# The image: one static binary, as a user without rights, with nothing else to run.
#
#   make image                     # or: docker build -t idemproxy:local .
#   docker run -p 8080:8080 -e IDEMPROXY_UPSTREAM_URL=http://host:3000 idemproxy:local
#
# Needs BuildKit, which Docker has had on since 23; before, set DOCKER_BUILDKIT=1. For another
# kind of machine: docker build --platform linux/arm64 (Go cross-compiles, nothing is emulated).

FROM --platform=$BUILDPLATFORM golang:1.27.3-bookworm AS build
# Everything below happens in here, so that a test can run the same lines without Docker.
WORKDIR /src
# The image's own Go, which is the Makefile's; nothing is fetched in its place.
ENV GOTOOLCHAIN=local
# For builds behind a mirror: --build-arg GOPROXY=…
ARG GOPROXY
ARG GOSUMDB
COPY go.mod go.sum ./
RUN go mod download
# The image's folders, which anybody may read whatever the umask of the checkout was, and
# the one that the file store writes.
COPY deploy/image deploy/image
RUN mkdir -p out/state out/root/var/lib && cp -R deploy/image/. out/root && chmod -R u=rwX,go=rX out
COPY cmd cmd
COPY internal internal
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
# The Makefile's BUILD (a test compares them), and nothing that depends on a git folder.
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -buildvcs=false -trimpath -tags grpcnotrace,noman -ldflags "-s -w -X main.version=$VERSION" -o out/idemproxy ./cmd/idemproxy

FROM scratch
ARG VERSION=dev
ARG REVISION
LABEL org.opencontainers.image.title="idemproxy" \
      org.opencontainers.image.description="A reverse proxy that makes an HTTP service safe to retry" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
# The user's name, and a configuration that asks for IDEMPROXY_UPSTREAM_URL only.
COPY --from=build /src/out/root /
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /src/out/state /var/lib/idemproxy
COPY --from=build /src/out/idemproxy /idemproxy
# The health check and `docker exec … /idemproxy keys` read the same file as the proxy.
ENV IDEMPROXY_CONFIG=/etc/idemproxy/idemproxy.yaml
USER 65532:65532
# 8080 for callers; 9090 for probes and metrics.
EXPOSE 8080 9090
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 CMD ["/idemproxy", "healthcheck"]
ENTRYPOINT ["/idemproxy"]
CMD ["serve"]
