# make without a target lists what there is.

GO       ?= go
LINT     := $(GO) tool -modfile=tools/go.mod golangci-lint
FUZZTIME ?= 20s
ATONCE   := $(shell echo $$(($$(nproc 2>/dev/null || echo 2) + 2)))
LONGEST  := ./cmd/coatcheck ./server ./chaos ./scripts ./client ./lock
# More for one run: make run ARGS='--listen 127.0.0.1:9090', make test-go ARGS='-run TestClaim ./idempotency'
ARGS     ?=

.DEFAULT_GOAL := help
.PHONY: help run build test test-go lint fmt browser fuzz chaos bench deps clean vuln licences sbom release release-check deploy-check

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: ## Run the service on the embedded store, with the demo routes (ARGS: more flags)
	$(GO) run ./cmd/coatcheck serve --dev $(ARGS)

build: ## Build bin/coatcheck, static and without paths of this machine
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/coatcheck ./cmd/coatcheck

sbom: build ## Build, and write the bill of materials of the binary, bin/sbom.json (CycloneDX)
	$(GO) run ./internal/supply sbom bin/coatcheck > bin/sbom.json

release: sbom ## Build bin/coatcheck with what goes along: sbom.json, licences.txt, SHA256SUMS
	$(GO) run ./internal/supply texts > bin/licences.txt
	cd bin && sha256sum coatcheck sbom.json licences.txt > SHA256SUMS

release-check: ## Build twice from nothing, in two folders, and compare the bytes (a few minutes)
	$(GO) run ./internal/supply reproduce

licences: ## Write docs/licences.md: the modules in the binary, and their licences
	$(GO) run ./internal/supply licences

# It asks vuln.go.dev, so it is no part of make test: what passes today may fail tomorrow without a change, and not every machine reaches it.
vuln: ## Look for known vulnerabilities in what the code calls (asks vuln.go.dev)
	$(GO) tool -modfile=tools/go.mod govulncheck ./...

# A module of its own, without the race detector: Helm and Kubernetes are large.
deploy-check: ## Have Compose's loader, Helm's engine and Kubernetes' types read what is under deploy
	cd deploy/check && $(GO) vet ./... && $(GO) test -count=1 ./...

# Every step runs even if one before it has failed, so that one run tells all; the counts come last. bench is a module of its own. Inputs are counted and not timed: go test
# can call it a failure that a fuzzing's time is over. The time limit is for two slow cores: cmd/coatcheck starts some hundred processes. What takes longest begins
# first, so that no core is idle at the end, and two packages more than there are cores run at a time, since tests of servers wait for a third of their time. go vet has had
# its say by then.
test: deps ## Run everything a change has to pass: go vet, the linter, a short fuzzing, all tests with the race detector
	@failed=; \
	echo '$(GO) vet ./...'; $(GO) vet ./... || failed="$$failed vet"; \
	echo 'golangci-lint run'; $(LINT) run ./... || failed="$$failed lint"; \
	echo 'fuzz, 5000 inputs each'; $(MAKE) --no-print-directory fuzz FUZZTIME=5000x || failed="$$failed fuzz"; \
	echo 'bench: $(GO) vet, $(GO) test'; (cd bench && $(GO) vet ./... && $(GO) tool -modfile=../tools/go.mod golangci-lint run ./... && $(GO) run ../internal/testcount -race -count=1 ./...) || failed="$$failed bench"; \
	echo '$(GO) test -race -count=1 ./...'; $(GO) run ./internal/testcount -race -count=1 -vet=off -p $(ATONCE) -timeout 20m $(LONGEST) ./... || failed="$$failed test"; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

test-go: ## Run only the tests (ARGS: flags and packages, else all)
	$(GO) run ./internal/testcount -race $(if $(ARGS),$(ARGS),./...)

lint: ## Run the linter; .golangci.yml says what it looks for, and why
	$(LINT) run ./...

fmt: ## Format the Go code and order its imports
	$(LINT) fmt ./...

# Each package with a FuzzXxx is built once, with the coverage of our own code alone, and its fuzz tests run from that program: go test would link it again for each of
# them, and compile everything that it imports for a coverage that nobody asks for.
fuzz: ## Fuzz every FuzzXxx of every package for FUZZTIME (20s)
	@work=$$(mktemp -d) || exit 1; \
	trap 'rm -rf "$$work"' EXIT; \
	module=$$($(GO) list -m); \
	cache=$$($(GO) env GOCACHE)/fuzz; \
	found=0; failed=; \
	for package in $$(grep -rl --include='*_test.go' --exclude-dir=bench '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
		$(GO) test -c -gcflags="$$module/...=-d=libfuzzer" -o "$$work/fuzz.test" $$package || exit 1; \
		for name in $$("$$work/fuzz.test" -test.list '^Fuzz'); do \
			found=$$((found + 1)); \
			echo "$$package $$name"; \
			(cd $$package && "$$work/fuzz.test" -test.run '^$$' -test.fuzz "^$$name\$$" -test.fuzztime $(FUZZTIME) -test.fuzzcachedir "$$cache/coatcheck/$$package") || failed="$$failed $$name"; \
		done; \
	done; \
	echo "$$found fuzz tests, each for $(FUZZTIME)"; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi; \
	[ $$found -gt 0 ]

browser: deps ## Run only the console's tests, in a real browser (ARGS=-update takes the pictures of docs/console anew)
	$(GO) test -race -count=1 -v ./console $(if $(ARGS),-args $(ARGS))

chaos: ## Break processes and Redis under load and check every history, at length (ARGS: more flags for ./chaos, such as -rounds=100)
	$(GO) test -race -count=1 -timeout 60m -v ./chaos -args -rounds=30 $(ARGS)
	$(GO) test -race -count=1 -timeout 60m -v ./chaos/ids -args -rounds=20
	$(GO) test -race -count=1 -timeout 60m -v ./chaos/counters -args -rounds=12
	$(GO) test -race -count=1 -timeout 60m -v ./chaos/segments -args -rounds=12
	$(GO) test -race -count=1 -timeout 60m -v ./chaos/locks -args -rounds=20 -trials=200 -names=1000000
	$(GO) test -race -count=1 -timeout 60m -v ./internal/leasesim -args -rounds=2000
	$(GO) test -race -count=1 -timeout 60m -v ./chaos/soak -args -minutes=5

bench: ## Measure side by side with peers, as ratios (ARGS: what to measure, such as guard -rounds 3; bench/README.md lists all)
	cd bench && $(GO) run . $(if $(ARGS),$(ARGS),guard)

# redis-server, mariadbd and postgres are what the tests start, each its own; REDIS_SERVER names another redis-server. The race detector needs a C compiler. Python and Node run
# the examples; npm fetches what checks the console for accessibility, in chromium. systemd-analyze reads the units; nothing of systemd is started. Of MariaDB the core packages are enough, which start nothing. PostgreSQL's would make a cluster that runs from then on, unless it is told not to.
deps: ## Install what the tests need where it is missing (apt-get): redis-server, MariaDB, PostgreSQL, curl, jq, openssl, python3, node, npm, chromium, systemd, a C compiler
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
	command -v systemd-analyze >/dev/null || missing="$$missing systemd"; \
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
