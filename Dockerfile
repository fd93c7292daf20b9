# The images of the manager and the agent. To build them with Docker:
#
#     docker build --target manager --tag conclave/manager .
#     docker build --target agent   --tag conclave/agent .
#
# `make image` builds the same images without Docker (see hack/image, whose tests compare both): a static binary on an empty base,
# which runs as a user without privileges.

FROM --platform=$BUILDPLATFORM golang:1.26.8@sha256:9d2f36f06329b2a141b9db99ffa32765cf695ee57b813ca29e245e8670bcbfff AS source
WORKDIR /src
COPY go.mod go.sum ./
COPY api/go.mod api/go.sum api/
COPY client/go.mod client/
COPY controllerruntime/go.mod controllerruntime/go.sum controllerruntime/
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ENV CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly GOAMD64=v1 GOARM64=v8.0

FROM source AS build-manager
ARG TARGETOS TARGETARCH VERSION=unversioned
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -gcflags all=-dwarf=false -ldflags "-s -w -buildid= -X main.version=$VERSION" -o /out/manager ./cmd/manager

FROM source AS build-agent
ARG TARGETOS TARGETARCH VERSION=unversioned
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -gcflags all=-dwarf=false -ldflags "-s -w -buildid= -X main.version=$VERSION" -o /out/agent ./cmd/agent

FROM scratch AS agent
ARG VERSION=unversioned
LABEL org.opencontainers.image.title="conclave-agent" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.source="https://github.com/conclave-dev/conclave" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build-agent --chmod=0755 /out/agent /agent
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/agent"]

# The last stage is the default target of `docker build`.
FROM scratch AS manager
ARG VERSION=unversioned
LABEL org.opencontainers.image.title="conclave-manager" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.source="https://github.com/conclave-dev/conclave" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build-manager --chmod=0755 /out/manager /manager
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/manager"]
