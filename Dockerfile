# Pinned by the digest that the tag had: Go 1.26.8. deploy/README.md says how to take another.
FROM golang:1.26-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
# The context holds no .git, so there is no revision to stamp.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go/build \
    GOCACHE=/go/build CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags="-s -w" -o /out/coatcheck ./cmd/coatcheck

# Nothing but the binary, and the certificates that rediss:// is checked against.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/coatcheck /coatcheck
USER 65532:65532
# Others than the container reach that, so it starts only with keys and a certificate
# (docs/access.md), or with COATCHECK_INSECURE=true where the port is published on the host's
# loopback alone, or something in front encrypts and asks who is there. The image does not say the
# latter for its operator.
ENV COATCHECK_LISTEN=0.0.0.0:8080
EXPOSE 8080
# There is no curl in here: the binary asks itself, at the address it listens on. Unhealthy may also
# mean that the store does not answer.
HEALTHCHECK --interval=10s --timeout=6s --start-period=10s --retries=3 CMD ["/coatcheck", "healthcheck"]
ENTRYPOINT ["/coatcheck"]
CMD ["serve"]
