# make without a target lists what there is.

GO       ?= go
LINT     := $(GO) tool -modfile=tools/go.mod golangci-lint
FUZZTIME ?= 20s
ATONCE   := $(shell echo $$(($$(nproc 2>/dev/null || echo 2) + 4)))
TESTRUN  := bin/testrun
# The first ones wait for most of their time and import little: they run while the others compile.
LONGEST  := ./scripts ./redisstore ./lock ./counter ./workerlease ./server ./cmd/coatcheck/internal/cli ./gateway ./client ./idempotency ./embedded ./conformance ./internal/redisprobe ./internal/testing/redistest ./number ./segment ./limit ./internal/leasesim ./openapi
# Every module beside the main one but for deploy/check, which make deploy-check runs.
MODULES  := $(filter-out tools deploy/check,$(patsubst %/go.mod,%,$(wildcard */go.mod */*/go.mod)))
# More for one run: make run ARGS='--listen 127.0.0.1:9090',
# make test-go ARGS='-run TestClaim ./idempotency'
ARGS     ?=
# What modules leave to make nightly: make check-modules SHORT=-short.
SHORT    ?=
# One build serves make test, make check and make nightly: all tests, with the race detector. A tag
# says when the tests of a file run: check in make check, steps in make walk, nightly in make
# nightly.
TAGS     := check,steps,nightly
WALK     := github.com/coatcheck/coatcheck/internal/testing/walk

.DEFAULT_GOAL := help
SHELL    := bash
.PHONY: help run build test check nightly engines check-modules test-busy test-go lint fmt tidy browser fuzz chaos walk soak proof prices bench deps clean vuln licences sbom release release-check workflows deploy-check compose-check

# Nobody debugs a test binary, and without the tables for debuggers the compiler needs a tenth less
# time. By GOFLAGS, so that programs which tests build share what is compiled. With more memory the
# compiler needs a fifth less again; tests of memory set GOGC back.
test check nightly check-modules test-busy test-go walk fuzz chaos lint: export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -gcflags=all=-dwarf=false)
test check nightly check-modules test-busy test-go walk fuzz chaos lint: export GOGC := 400

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: ## Run the service on the embedded store, with the demo routes (ARGS: more flags)
	$(GO) run ./cmd/coatcheck serve --dev $(ARGS)

build: ## Build bin/coatcheck, static and without paths of this machine
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags="-s -w" -o bin/coatcheck ./cmd/coatcheck

sbom: build ## Build, and write the bill of materials of the binary, bin/sbom.json (CycloneDX)
	$(GO) run -C tools/release . sbom ../../bin/coatcheck > bin/sbom.json

release: ## Build bin/release: archives, container images, bills of materials, SHA256SUMS
	rm -rf bin/release
	$(GO) run -C tools/release . release ../../bin/release

# A module file of its own: its YAML library is another one than the linter's.
workflows: ## Check the files under .github/workflows (actionlint; nothing of them is run)
	$(GO) tool -modfile=tools/actionlint.mod actionlint

release-check: ## Build twice from nothing, in two folders, and compare the bytes (a few minutes)
	$(GO) run -C tools/release . reproduce

licences: ## Write docs/licences.md: the modules in the binary, and their licences
	$(GO) run -C tools/release . licences

# It asks vuln.go.dev, so it is no part of make check: what passes today may fail tomorrow without a
# change, and not every machine reaches it.
vuln: ## Look for known vulnerabilities in what the code calls (asks vuln.go.dev)
	$(GO) tool -modfile=tools/go.mod govulncheck ./...

# A module of its own, without the race detector: Helm and Kubernetes are large.
deploy-check: ## Have Compose's loader, Helm's engine and Kubernetes' types read what is under deploy
	cd deploy/check && $(GO) vet ./... && $(GO) test -count=1 ./...

# Not a part of make check: it needs root, and a kernel that lets a Docker engine run.
compose-check: ## Start docker-compose.yml for real with a Docker engine of its own: restarts, an upgrade, failovers (root; 5 minutes)
	@tools/deps compose
	$(GO) test -tags=compose -count=1 -timeout 30m -v ./deploy/containers

# The runner of tests says how far it is, refuses skips, and tells at the end which packages took
# most of the processors. Test binaries stay in bin/tests, so that the next run links only what
# changed. It is a module of its own, as bench is.
$(TESTRUN): $(wildcard tools/testrun/*.go tools/testrun/go.*)
	cd tools/testrun && $(GO) build -o ../../$@ .

# What takes longest begins first, so that no core is idle at the end, and four packages more than
# there are cores run at a time, since tests of servers wait for a third of their time. The time
# limit only ends what hangs: a busy machine is the normal case. make check vets.
test: $(TESTRUN) ## Run the tests: all domains and commands, with the race detector (needs redis-server; ARGS: more flags)
	@tools/deps test
	@$(TESTRUN) -race -tags=$(TAGS) -without=$(TAGS) -count=1 -vet=off -p $(ATONCE) -timeout 60m $(ARGS) $(LONGEST) ./...

check: $(TESTRUN) ## Run everything else: vet, fuzzing, browser, SQL servers, examples, bench, chaos, licences, deploy
	@GO="$(GO)" TAGS=$(TAGS) MODULES="$(MODULES)" tools/check

nightly: deps $(TESTRUN) ## Run what takes hours: all at full length, all linters, fuzzing, soak, prices, releases (NIGHTLY='chaos walk': only these)
	@GO="$(GO)" TAGS=$(TAGS) tools/nightly $(NIGHTLY)

check-modules: $(TESTRUN) ## Run the tests of each module beside the main one, two modules at a time
	@GO="$(GO)" SHORT=$(SHORT) tools/modules $(MODULES)

engines: ## Run what depends on the engine on Redis 8.0, 8.6, Valkey 8.1 and 9.1 (ENGINES=FOLDER, where they are unpacked)
	tools/engines $(ENGINES) && GO="$(GO)" tools/engines-run $(ENGINES) redis80 redis86 valkey81 valkey91

test-busy: ## Run make test ten times in a row beside four busy loops, then once shuffled and three times over (RUNS=10)
	@tools/busy

test-go: $(TESTRUN) ## Run only some tests (ARGS: flags and packages, else all; -tags=check for those of make check)
	$(TESTRUN) -race $(if $(ARGS),$(ARGS),./...)

lint: ## Run all linters over all modules; .golangci.yml says what they look for, and why
	@GO="$(GO)" tools/lint $(MODULES)

fmt: ## Format the Go code and order its imports
	$(LINT) fmt ./...

tidy: ## Run go mod tidy in every module but those of tools and deploy/check
	@GO="$(GO)" tools/tidy . $(MODULES)

# Each package with a FuzzXxx is built once, with the coverage of our own code alone, and its fuzz
# tests run from that program: go test would link it again for each of them, and compile all that it
# imports for coverage. The programs stay in bin, and only what changed is linked anew.
fuzz: ## Fuzz every FuzzXxx of every package for FUZZTIME (20s)
	@module=$$($(GO) list -m); \
	cache=$$($(GO) env GOCACHE)/fuzz; \
	found=0; failed=; \
	for package in $$(grep -rl --include='*_test.go' --exclude-dir=bench '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
		program=$$PWD/bin/fuzz/$$package/fuzz.test; mkdir -p "$${program%/*}"; \
		$(GO) test -c -vet=off -tags=check,nightly -gcflags="$$module/...=-d=libfuzzer" -ldflags='-s -w' -o "$$program" $$package || exit 1; \
		for name in $$("$$program" -test.list '^Fuzz'); do \
			found=$$((found + 1)); \
			echo "$$package $$name"; \
			(cd $$package && "$$program" -test.run '^$$' -test.fuzz "^$$name\$$" -test.fuzztime $(FUZZTIME) -test.fuzzcachedir "$$cache/coatcheck/$$package") || failed="$$failed $$name"; \
		done; \
	done; \
	echo "$$found fuzz tests, each for $(FUZZTIME)"; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi; \
	[ $$found -gt 0 ]

browser: deps ## Run only the console's tests, in a real browser (ARGS=-update takes the pictures of docs/console anew)
	cd console/browser && $(GO) test -race -count=1 -timeout 60m -v . $(if $(ARGS),-args $(ARGS))

chaos: ## Break processes and Redis under load and check every history, at length (ARGS: more flags for ./chaos, such as -rounds=100)
	$(GO) test -race -count=1 -tags=check,nightly -timeout 60m -v ./chaos -args -rounds=30 -cuts=1000 $(ARGS)
	$(GO) test -race -count=1 -tags=check,nightly -timeout 60m -v ./chaos/ids -args -rounds=20
	$(GO) test -race -count=1 -tags=check,nightly -timeout 60m -v ./chaos/counters -args -rounds=12 -lanes=4
	$(GO) test -race -count=1 -tags=check,nightly -timeout 60m -v ./chaos/segments -args -rounds=12
	$(GO) test -race -count=1 -tags=check,nightly -timeout 60m -v ./chaos/locks -args -rounds=20 -trials=200 -names=1000000
	$(GO) test -race -count=1 -tags=check,nightly -timeout 60m -v ./chaos/outages -args -cuts=1000
	$(GO) test -race -count=1 -tags=check,nightly -timeout 60m -v ./chaos/resolvers -args -keys=500 -duplicates=20
	$(GO) test -race -count=1 -tags=check,nightly -timeout 60m -v ./internal/leasesim -args -rounds=2000
	$(GO) test -race -count=1 -tags=check,nightly -timeout 60m -v ./chaos/soak -args -minutes=5
	@$(MAKE) --no-print-directory walk ARGS='-args -walk.rounds=100000'

proof: deps ## Write docs/proof.md and docs/benchmarks.md from nothing (40 minutes on 2 quiet cores; tools/proof has more)
	@tools/proof

# The points of internal/step are there with the tag steps only. The walker would hide data races
# from the race detector; in half of the random rounds it does not choose. Walks of all orders have
# no race detector, which makes them four times cheaper.
walk: $(TESTRUN) ## Run small scenes in every order of their steps, and larger ones at random (ARGS)
	@packages="./internal/testing/walk $$(grep -rl --include='*_test.go' '"$(WALK)"' . | xargs -n 1 dirname | sort -u)" && \
	$(TESTRUN) -count=1 -vet=off -tags=steps -timeout 6h -run '^TestWalk' -skip '^TestWalkRandomOrders' $$packages $(ARGS) && \
	$(TESTRUN) -race -count=1 -vet=off -tags=$(TAGS) -timeout 6h -run '^TestWalkRandomOrders' $$packages $(ARGS)

soak: ## Load a service and a gateway for an hour with a fault a minute, and compare the halves of all figures (ARGS='-soak=5m')
	$(GO) test -count=1 -tags=check,nightly -timeout 0 -v -run TestSoakWithFaults ./chaos/soak -args -soak=1h $(ARGS)

# Rows of restarts are nearly all waiting, so all of them run at once.
prices: ## Measure what each safety costs, and write the tables of docs/proof.md (10 minutes; ARGS: chaos/prices/doc.go)
	$(GO) test -count=1 -tags=check,nightly -timeout 60m -parallel 32 -v -run TestPrices ./chaos/prices -args -all -outages -write $(ARGS)

bench: ## Measure side by side with peers, as ratios (ARGS: what to measure, such as guard -rounds 3; bench/README.md lists all)
	cd bench && $(GO) run . $(if $(ARGS),$(ARGS),guard)

deps: ## Install what make test and make check need where it is missing (apt-get)
	@tools/deps check

clean: ## Remove what was built
	rm -rf bin coverage.out
