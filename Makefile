# Everything one does with this repository. GNU make 4.3 or newer, Go 1.26 or newer, git.

# Go 1.26's own standard library has known vulnerabilities that a reverse proxy reaches
# (HTTP desync, HTTP/2 memory), so everything here is built and tested with a patched
# Go, which the go command fetches like a module. Take another one by
# `make GOTOOLCHAIN=local …` or by the environment; a bare `go build` with 1.26 works too.
export GOTOOLCHAIN ?= go1.27.3

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
TOOL    := go tool -modfile=tools/go.mod

.DEFAULT_GOAL := help
.PHONY: help build image run test lint fmt fmt-check vet vuln tidy-check check-deploy check-release release-snapshot docker-e2e docs chart-sync kube-e2e bench fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Without symbols for debuggers, and without golang.org/x/net/trace, which gRPC would bring
# along: it uses text/template, for which the linker keeps every method. 24 MB, not 50.
# noman leaves out the command that writes manual pages, which `make docs` runs.
BUILD := -trimpath -tags grpcnotrace,noman -ldflags '-s -w -X main.version=$(VERSION)'

build: ## build bin/idemproxy, one static binary
	CGO_ENABLED=0 go build $(BUILD) -o bin/idemproxy ./cmd/idemproxy

IMAGE ?= idemproxy:local

image: ## build the container image, IMAGE (idemproxy:local), with Docker
	DOCKER_BUILDKIT=1 docker build --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null) -t $(IMAGE) .

run: build ## build and run the demo: a sample payments API with the proxy in front
	bin/idemproxy demo

test: ## run all tests with the race detector; fetches the services they need
	scripts/test.sh

FUZZTIME ?= 60s

fuzz: ## run every fuzz target in turn, FUZZTIME each (60s)
	scripts/fuzz.sh $(FUZZTIME)

bench: ## compare the proxy with a bare reverse proxy, in rounds
	go run ./bench

fmt: ## format the Go code
	$(TOOL) gofumpt -w .

fmt-check: ## fail, with the difference, if the Go code is not formatted
	@diff=$$($(TOOL) gofumpt -d .) && [ -z "$$diff" ] || { echo "$$diff"; echo 'Not formatted: run make fmt.'; exit 1; }

vet: ## run go vet
	go vet ./...
	go -C test/deploy vet ./...

lint: ## run the linters of .golangci.yml (their first build takes minutes)
	$(TOOL) golangci-lint run
	cd test/deploy && go tool -modfile=../../tools/go.mod golangci-lint run

vuln: ## look for known vulnerabilities that the program reaches
	scripts/vulndb.sh
	$(TOOL) govulncheck -db "file://$(CURDIR)/.cache/vulndb" ./...

tidy-check: ## fail, with the difference, if go.mod or go.sum is not tidy
	go mod tidy -diff
	go -C tools mod tidy -diff
	go -C tools/release mod tidy -diff
	go -C test/deploy mod tidy -diff

check-deploy: ## check and test the alerts, and the dashboard's queries, with promtool
	scripts/check-deploy.sh

docker-e2e: ## build the image and run the compose files on a real Docker engine
	scripts/docker-e2e.sh

chart-sync: ## bring the chart's README, schema and copies up to date with what they are made of
	cd test/deploy && UPDATE_GOLDEN=1 go test -count=1 -run 'TestCopies|TestSchemaHolds|TestReadme' ./chart

kube-e2e: ## run the chart on a real Kubernetes node, made here (root; not part of make test)
	scripts/kube-e2e.sh

RELEASE := go tool -modfile=tools/release/go.mod goreleaser

check-release: ## check .goreleaser.yaml (the tool's first build takes minutes)
	$(RELEASE) check

release-snapshot: ## make archives and packages in dist/release, and publish nothing
	$(RELEASE) release --snapshot --clean --skip=publish

docs: build ## write manual pages and shell completions to dist/
	go run -ldflags '-X main.version=$(VERSION)' ./cmd/idemproxy man dist/man/man1
	mkdir -p dist/completions
	for shell in bash zsh fish powershell; do bin/idemproxy completion $$shell >dist/completions/idemproxy.$$shell || exit 1; done

clean: ## remove what the other targets made
	rm -rf bin dist .cache
