# Every target works on a fresh clone with Go and make. "test", "e2e", "golden"
# and "demo" need root: they make network namespaces and load nftables rules.

VERSION := $(or $(shell git describe --tags --always --dirty 2>/dev/null),(devel))
BINARY := bin/nftproxy
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.DEFAULT_GOAL := help

.PHONY: help
help: ## print this list
	@sed -n 's/^\([a-z0-9]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

.PHONY: build
build: ## build the static program bin/nftproxy
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X 'main.version=$(VERSION)'" -o $(BINARY) ./cmd/nftproxy

.PHONY: test
test: ## run all tests; NO_SKIP=1 fails if any was skipped
	scripts/install-packages nft:nftables iptables-nft:iptables
	NO_SKIP=$(NO_SKIP) scripts/test

.PHONY: e2e
e2e: ## run the tests against a real API server (builds it: 8 minutes the first time); NO_SKIP as for test
	cd e2e && go vet ./... && go run $(STATICCHECK) ./... && go mod tidy -diff
	scripts/install-packages nft:nftables iptables-nft:iptables
	cd e2e/tools && go mod tidy -diff
	cd e2e && TIMEOUT=30m NO_SKIP=$(NO_SKIP) ../scripts/test

.PHONY: manifests
manifests: ## check manifests, chart and alerts with kustomize, Helm and Prometheus (builds them: 3 minutes the first time)
	cd deploy/check && go vet ./... && go run $(STATICCHECK) ./... && go mod tidy -diff
	cd deploy/check && NO_SKIP=$(NO_SKIP) ../../scripts/test

.PHONY: image
image: ## build the container image (needs Docker)
	docker build -f deploy/Dockerfile --build-arg VERSION=$(VERSION) -t nftproxy:$(VERSION) .

.PHONY: golden
golden: ## check the golden files; UPDATE=1 rewrites them
	scripts/install-packages nft:nftables iptables-nft:iptables
	go test -count=1 ./golden/... $(if $(UPDATE),-update)

.PHONY: demo
demo: build ## show balancing, scaling and refusing with real packets
	go run ./demo $(BINARY) demo/services.yaml

.PHONY: lint
lint: ## check formatting, vet, staticcheck and go.mod
	@test -z "$$(gofmt -l .)" || { echo "not formatted with gofmt:"; gofmt -l .; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...
	go mod tidy -diff

.PHONY: bench
bench: ## run the benchmarks; BENCH selects some by a regular expression
	go test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem ./...

.PHONY: cover
cover: ## run the tests and print the coverage by function
	scripts/install-packages nft:nftables iptables-nft:iptables
	go test -count=1 -coverpkg=./internal/...,./cmd/... -coverprofile=coverage.out ./...
	go tool cover -func=coverage.out

.PHONY: clean
clean: ## remove what the other targets have made
	rm -rf bin coverage.out
