# make without a target lists what there is.

GO       ?= go
LINT     := $(GO) tool -modfile=tools/go.mod golangci-lint
FUZZTIME ?= 20s
# More for one run: make run ARGS='--listen 127.0.0.1:9090', make test-go ARGS='-run TestClaim ./idempotency'
ARGS     ?=

.DEFAULT_GOAL := help
.PHONY: help run build test test-go lint fmt browser fuzz chaos bench deps clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: ## Run the service on the embedded store, with the demo routes (ARGS: more flags)
	$(GO) run ./cmd/coatcheck serve --dev $(ARGS)

build: ## Build bin/coatcheck, static and without paths of this machine
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/coatcheck ./cmd/coatcheck

# Every step runs even if one before it has failed, so that one run tells all; the counts come last. bench is a module of its own. Inputs are counted and not timed: go test
# can call it a failure that a fuzzing's time is over.
test: deps ## Run everything a change has to pass: go vet, the linter, a short fuzzing, all tests with the race detector
	@failed=; \
	echo '$(GO) vet ./...'; $(GO) vet ./... || failed="$$failed vet"; \
	echo 'golangci-lint run'; $(LINT) run ./... || failed="$$failed lint"; \
	echo 'fuzz, 5000 inputs each'; $(MAKE) --no-print-directory fuzz FUZZTIME=5000x || failed="$$failed fuzz"; \
	echo 'bench: $(GO) vet, $(GO) test'; (cd bench && $(GO) vet ./... && $(GO) tool -modfile=../tools/go.mod golangci-lint run ./... && $(GO) run ../internal/testcount -race -count=1 ./...) || failed="$$failed bench"; \
	echo '$(GO) test -race -count=1 ./...'; $(GO) run ./internal/testcount -race -count=1 ./... || failed="$$failed test"; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

test-go: ## Run only the tests (ARGS: flags and packages, else all)
	$(GO) run ./internal/testcount -race $(if $(ARGS),$(ARGS),./...)

lint: ## Run the linter; .golangci.yml says what it looks for, and why
	$(LINT) run ./...

fmt: ## Format the Go code and order its imports
	$(LINT) fmt ./...

fuzz: ## Fuzz every FuzzXxx of every package for FUZZTIME (20s)
	@packages=$$($(GO) list ./...) || exit 1; \
	found=0; \
	for package in $$packages; do \
		names=$$($(GO) test -list '^Fuzz' $$package) || { echo "$$names"; exit 1; }; \
		for name in $$(echo "$$names" | grep '^Fuzz'); do \
			found=$$((found + 1)); \
			echo "$$package $$name"; \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
		done; \
	done; \
	echo "$$found fuzz tests, each for $(FUZZTIME)"

browser: deps ## Run only the console's tests, in a real browser (ARGS=-update takes the pictures of docs/console anew)
	$(GO) test -race -count=1 -v ./console $(if $(ARGS),-args $(ARGS))

chaos: ## Break processes and Redis under load and check every history, at length (ARGS: more flags for ./chaos, such as -rounds=100)
	$(GO) test -race -count=1 -timeout 60m -v ./chaos -args -rounds=30 $(ARGS)
	$(GO) test -race -count=1 -timeout 60m -v ./chaos/ids -args -rounds=20
	$(GO) test -race -count=1 -timeout 60m -v ./chaos/counters -args -rounds=12
	$(GO) test -race -count=1 -timeout 60m -v ./chaos/segments -args -rounds=12
	$(GO) test -race -count=1 -timeout 60m -v ./chaos/locks -args -rounds=20 -trials=200 -names=1000000
	$(GO) test -race -count=1 -timeout 60m -v ./internal/leasesim -args -rounds=2000

bench: ## Measure side by side with peers, as ratios (ARGS: what to measure, such as guard -rounds 3; bench/README.md lists all)
	cd bench && $(GO) run . $(if $(ARGS),$(ARGS),guard)

# redis-server, mariadbd and postgres are what the tests start, each its own; REDIS_SERVER names another redis-server. The race detector needs a C compiler. Python and Node run
# the examples; npm fetches what checks the console for accessibility, in chromium. Of MariaDB the core packages are enough, which start nothing. PostgreSQL's would make a cluster that runs from then on, unless it is told not to.
deps: ## Install what the tests need where it is missing (apt-get): redis-server, MariaDB, PostgreSQL, curl, jq, python3, node, npm, chromium, a C compiler
	@missing=; \
	command -v "$${REDIS_SERVER:-redis-server}" >/dev/null || missing="$$missing redis-server"; \
	(PATH="$$PATH:/usr/sbin:/usr/libexec"; command -v mariadbd) >/dev/null || missing="$$missing mariadb-server-core"; \
	command -v my_print_defaults >/dev/null || missing="$$missing mariadb-client-core"; \
	(PATH="$$PATH:$$(echo /usr/lib/postgresql/*/bin | tr ' ' :)"; command -v postgres) >/dev/null || missing="$$missing postgresql"; \
	command -v curl >/dev/null || missing="$$missing curl"; \
	command -v jq >/dev/null || missing="$$missing jq"; \
	command -v openssl >/dev/null || missing="$$missing openssl"; \
	command -v python3 >/dev/null || missing="$$missing python3"; \
	command -v node >/dev/null || missing="$$missing nodejs"; \
	command -v npm >/dev/null || missing="$$missing npm"; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || missing="$$missing chromium"; \
	command -v $$($(GO) env CC) >/dev/null || missing="$$missing gcc libc6-dev"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then echo "deps: install$$missing; there is no apt-get here to do it" >&2; exit 1; fi; \
	sudo=; \
	if [ "$$(id -u)" != 0 ]; then \
		if ! command -v sudo >/dev/null; then echo "deps: install$$missing as root; there is no sudo here to do it" >&2; exit 1; fi; \
		sudo=sudo; \
	fi; \
	echo "deps: installing$$missing"; \
	nocluster=/etc/postgresql-common/createcluster.d/coatcheck-deps.conf; \
	trap '$$sudo rm -f $$nocluster' EXIT; \
	$$sudo mkdir -p $${nocluster%/*} && echo 'create_main_cluster = off' | $$sudo tee $$nocluster >/dev/null && \
	$$sudo apt-get update && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $$missing

clean: ## Remove what was built
	rm -rf bin coverage.out
