# Every target works on a fresh clone with Go and make. "demo", "upgrade", "test-kernels", "e2e",
# "soak" and most of "bench-*" need root: they create network namespaces and load
# nftables rules. "check", "unit", "packets", "test" and "golden" also run without
# root, in a user namespace.

VERSION := $(or $(shell git describe --tags --always --dirty 2>/dev/null),(devel))
BINARY := bin/nftproxy
comma := ,
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
MISSPELL := github.com/golangci/misspell/cmd/misspell@v0.8.0
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0

# Everything is compiled like the static program, so that targets share the
# build cache.
export CGO_ENABLED := 0

# What tests set up networks with. A Debian that is as small as an image has none of it.
LAB := nft:nftables ip:iproute2 sysctl:procps

.DEFAULT_GOAL := help

.PHONY: help
help: ## print this list
	@sed -n -e 's/^##@ \(.*\)/\n\1:/p' -e 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

##@ Daily

.PHONY: build
build: ## build the static program bin/nftproxy
	@scripts/compile ./cmd/nftproxy $(BINARY) -trimpath -ldflags "-s -w -X 'main.version=$(VERSION)'"

$(BINARY):
	$(MAKE) build

.PHONY: check
check: ## lint, and beside it all tests but those in test/: 5 minutes, or 1 if few packages have changed
	scripts/install-packages $(LAB) iptables-nft:iptables git:git jq:jq
	$(MAKE) --no-print-directory -j2 -Otarget lint changed

.PHONY: changed
changed:
	PATH="$$PATH:/usr/sbin:/sbin" go test -vet=off $$(go list ./... | grep -v nftproxy/nftproxy/test)

.PHONY: unit
unit: ## run the tests that need neither namespaces nor the kernel, those with goroutines or timers with the race detector (RACE=0: without it, and without a C compiler); variables as for test
	scripts/install-packages git:git $(if $(RACING),$(COMPILER))
	race=$$(scripts/packages-of race) && plain=$$(scripts/packages-of plain) && $(RUN_TESTS) $(RACING) $$race -- $$plain

.PHONY: packets
packets: ## run the other tests but those of test-machines; variables as for test
	scripts/install-packages $(LAB) $(PACKET_TOOLS)
	packages=$$($(PACKETS)) && $(RUN_TESTS) $(PROGRAM) $(SPLIT) $$packages

.PHONY: test
test: ## unit and packets, with all failures at the end (10 minutes); NO_SKIP=1 fails if any test was skipped, SHUFFLE=SEED repeats an order, PARALLEL=N packages run at a time
	scripts/install-packages $(LAB) $(PACKET_TOOLS) $(if $(RACING),$(COMPILER))
	race=$$(scripts/packages-of race) && plain=$$(scripts/packages-of plain) && packets=$$($(PACKETS)) && \
		$(RUN_TESTS) $(PROGRAM) $(SPLIT) $$packets $$plain -- $(RACING) $$race

.PHONY: race
race: ## unit and packets with the race detector, also in the program that packet tests start (half an hour); variables as for test
	scripts/install-packages $(LAB) $(PACKET_TOOLS) $(COMPILER)
	unit=$$(scripts/packages-of unit) && packets=$$($(PACKETS)) && $(RUN_TESTS) -race $(PROGRAM) $(SPLIT) $$unit $$packets

PACKET_TOOLS := iptables-nft:iptables strace:strace git:git jq:jq
PACKETS := scripts/packages-of packets | grep -v -e /test/pair -e /test/ecmp -e /test/names -e /test/servers
# Tests of the kernel, of files and of processes wait half of the time.
RUN_TESTS = PARALLEL=$(or $(PARALLEL),$$((2 * $$(nproc)))) NO_SKIP=$(NO_SKIP) SHUFFLE=$(SHUFFLE) scripts/test
# Packages whose tests start nftproxy share one.
PROGRAM := -program ./cmd/nftproxy
# The packages whose tests take longest. They mostly wait for packets and processes, and would outlast all others.
SPLIT := -split ./test -split ./cmd/nftproxy
# The race detector needs a C compiler.
COMPILER := gcc:gcc /usr/include/stdlib.h:libc6-dev
RACING := $(if $(filter 0,$(RACE)),,-race)

.PHONY: lint
lint: ## check formatting, vet, staticcheck, spelling, the workflow, go.mod and the limits of the code's size
	@test -z "$$(gofmt -l .)" || { echo "not formatted with gofmt:"; gofmt -l .; exit 1; }
	go vet ./...
	go vet -tags=guest,counting ./test ./test/clock # tests that only run on other kernels
	@for os in linux darwin windows; do for arch in amd64 arm64; do \
		echo "kubectl-nftproxy for $$os on $$arch"; \
		export GOOS=$$os GOARCH=$$arch; \
		go build -o /dev/null ./cmd/kubectl-nftproxy && go vet $$(go list -f '{{range .GoFiles}}cmd/kubectl-nftproxy/{{.}} {{end}}' ./cmd/kubectl-nftproxy) || exit 1; \
	done; done
	go run $(STATICCHECK) ./...
	git grep -lz . -- '*.go' '*.md' Makefile scripts | xargs -0 go run $(MISSPELL) -error
	go run $(ACTIONLINT)
	go run $(ACTIONLINT) docs/ci/github.yaml
	go mod tidy -diff
	go run ./scripts/figures

.PHONY: golden
golden: ## check the golden files; UPDATE=1 rewrites them
	scripts/install-packages nft:nftables iptables-nft:iptables
	go test -count=1 ./golden/... $(if $(UPDATE),-update)

.PHONY: docs
docs: ## write docs/cli.md, the manual pages, the JSON Schema and the diagrams in docs/images
	go test -count=1 ./cmd/nftproxy -run '^Test(Reference|BalanceManual|Schema)$$' -update
	go test -count=1 ./cmd/kubectl-nftproxy -run '^TestReference$$' -update
	go test -count=1 ./internal/setting -run '^TestPages$$' -update
	go run ./scripts/pictures docs/images

.PHONY: demo
demo: build ## show what nftproxy does, with real packets, in 12 steps; STEP=5 or STEP=replace shows one of them
	@scripts/compile ./demo bin/demo -trimpath
	@scripts/install-packages nft:nftables
	@STEP='$(STEP)' bin/demo $(BINARY) demo/services.yaml

.PHONY: clean
clean: ## remove the output of the other targets
	rm -rf bin dist coverage.out

##@ Rare

.PHONY: test-machines
test-machines: ## run the tests of two machines, of three behind ECMP routers, of names in DNS, and of servers behind a relay, with keepalived, conntrackd, bird, FRR, dnsmasq, HAProxy and nginx (2 minutes); needs root and Debian
	scripts/install-packages $(LAB) $(PAIR) $(SPEAKERS) dnsmasq:dnsmasq-base haproxy:haproxy \
		nginx:nginx /usr/lib/nginx/modules/ngx_stream_module.so:libnginx-mod-stream
	NO_SKIP=$(NO_SKIP) SHUFFLE=$(SHUFFLE) scripts/test ./test/pair ./test/ecmp ./test/names ./test/servers

.PHONY: often
often: ## run tests of packages with goroutines or timers RUNS=20 times with the race detector, and packet tests 3 times, beside LOAD=8 busy processes, the cheapest first; goes on where it was, and counts in test/often.json; ONLY selects packages by a regular expression, PARALLEL=8 run at a time
	scripts/install-packages $(LAB) $(PACKET_TOOLS) $(COMPILER)
	unit=$$(scripts/packages-of unit) && packets=$$($(PACKETS)) && \
		go run ./scripts/often -runs $(or $(RUNS),20) -load $(or $(LOAD),8) -parallel $(or $(PARALLEL),8) -only '$(ONLY)' $$unit -- $$packets

.PHONY: prove
prove: ## prove the rules of SERVICES=10000 Services, and of SEEDS=100 random worlds, for all classes of packets, also between the transactions of each change
	go test -vet=off -count=1 -v -timeout 1h ./internal/prove -run '^TestServices$$' -services $(or $(SERVICES),10000)
	go test -vet=off -count=1 -timeout 1h ./internal/prove -run '^TestRandom' -seeds $(or $(SEEDS),100)

.PHONY: prove-mutants
prove-mutants: ## check that the proof catches MUTANTS=200 mistakes in the source, drawn by MUTANT_SEED=1; goes on where it was (half an hour)
	go test -vet=off -count=1 -v -timeout 6h ./golden -run '^TestMutants$$' -mutants $(or $(MUTANTS),200) -mutant-seed $(or $(MUTANT_SEED),1)

.PHONY: simulate
simulate: ## run the process on models of a machine, with SEEDS=1000 random lists of events; SEED=7 is the first seed, and a failure replays with SEEDS=1 and its seed
	GOMAXPROCS=1 GOGC=2000 go test -vet=off -count=1 -v -timeout 12h ./internal/testkit/simulation -run '^TestSimulation$$' -seeds $(or $(SEEDS),1000) -seed $(or $(SEED),1)

.PHONY: simulate-defects
simulate-defects: ## bring back defects of earlier versions, one after the other, and check that the simulation finds each within SEEDS=40 seeds
	GOGC=400 go test -vet=off -count=1 -v -timeout 3h ./internal/testkit/simulation -run '^TestDefects$$' -defects -seeds $(or $(SEEDS),40)

.PHONY: worlds
worlds: ## compare random worlds with the kernel and real packets; WORLDS=300 is how many, STEPS=8 how long each lasts (default 2), SEED=7 the seed of the first (default: random); a failure replays with WORLDS=1 and its seed
	scripts/install-packages $(LAB)
	PATH="$$PATH:/usr/sbin:/sbin" go test -vet=off -count=1 -v -timeout 3h -parallel 4 ./test/worlds -worlds $(or $(WORLDS),30) -steps $(or $(STEPS),2) -seed $(or $(SEED),0)

.PHONY: screenshots
screenshots: ## take the pictures of terminals and of the page of --web in docs/images, from real sessions (a minute); needs root and Debian
	$(MAKE) build VERSION='$(shell git describe --tags --always)'
	go run ./scripts/screenshots $(BINARY) docs/images
	scripts/install-packages nft:nftables nsenter:util-linux $(BROWSER)
	cd e2e && SCREENSHOT=$(abspath docs/images) go test -count=1 -run '^TestPage$$' ./web

.PHONY: screenshots-nodes
screenshots-nodes: conformance-packages ## take the pictures of commands about all nodes in docs/images, from real sessions on real kubelets (6 minutes); needs root and Debian
	rm -rf bin/screenshots && mkdir -p bin/screenshots
	cd e2e && SCREENSHOTS=$(abspath bin/screenshots) go test -count=1 -v -timeout 30m -run '^Test(Plugin|Connections)$$' ./nodes
	go run ./scripts/screenshots -texts bin/screenshots docs/images

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (default 1m); FUZZ selects some by a regular expression
	FUZZTIME=$(FUZZTIME) FUZZ='$(FUZZ)' scripts/fuzz

.PHONY: fuzz-libfuzzer
fuzz-libfuzzer: ## build all fuzz targets as ClusterFuzzLite and OSS-Fuzz do, and run each with RUNS inputs (10 minutes); needs Debian
	scripts/install-packages clang:clang zip:zip unzip:unzip '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*:libclang-rt-dev'
	RUNS=$(RUNS) FUZZ='$(FUZZ)' scripts/fuzz-libfuzzer

.PHONY: scorecard
scorecard: ## judge the last commit by OpenSSF Scorecard, with the checks that need no Internet (compiles it: minutes the first time)
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && git archive HEAD | tar -x -C "$$dir" && \
		cd tools/scorecard && go vet . && go mod tidy -diff && go run . "$$dir"

.PHONY: test-kernels
test-kernels: ## run the tests that use the kernel in qemu, on Debian's kernels 6.1 and 6.12; KERNELS, PACKAGES and TESTS select some, GOLDEN=no leaves out the golden tests with their nft on this machine
	scripts/install-packages qemu-system-x86_64:qemu-system-x86
	go run ./test/kernels $(if $(PACKAGES),-packages '$(PACKAGES)') $(if $(TESTS),-tests '$(TESTS)') $(if $(filter no,$(GOLDEN)),-golden=false) $(KERNELS)

# The fast path needs flow tables of the kernel, which Debian's kernels have.
.PHONY: test-fast-path
test-fast-path: ## run the tests of the fast path and of flow tables in qemu, on Debian's kernels 6.1 and 6.12 (30 minutes); KERNELS selects one; needs root, Debian and qemu
	scripts/install-packages qemu-system-x86_64:qemu-system-x86
	go run ./test/kernels -golden=false -packages '^(test|internal/fastpath)$$' -tests '$(or $(TESTS),^Test(FastPath|Flowtables|SelfTest))' $(KERNELS)

.PHONY: test-fast-path-counted
test-fast-path-counted: ## measure and test what the fast path costs on a node with 250 pods, and how soon endpoints leave it, by instructions in an emulated machine (25 minutes); KERNELS=6.12, TESTS selects; needs root, Debian and qemu
	scripts/install-packages qemu-system-x86_64:qemu-system-x86
	go run ./test/kernels -golden=false -counting -packages '^test$$' -tests '$(or $(TESTS),^TestFastPath(Cost|ChurnInTime)$$)' $(or $(KERNELS),6.12)

.PHONY: test-queries-counted
test-queries-counted: ## measure and test what DNS queries cost by several paths, by instructions in emulated machines (5 minutes); KERNELS selects one; needs root, Debian and qemu
	scripts/install-packages qemu-system-x86_64:qemu-system-x86
	go run ./test/kernels -golden=false -counting -packages '^test$$' -tests '^TestQueriesCost$$' $(KERNELS)

# First packets that rules refuse or log, and what is said about them: nflog and the kernel's trace.
.PHONY: test-observe
test-observe: ## run the tests of refused and failed connections, and of trace, in emulated machines that count instructions, on Debian's kernels 6.1 and 6.12 (25 minutes); KERNELS selects one; needs root, Debian and qemu
	scripts/install-packages qemu-system-x86_64:qemu-system-x86
	go run ./test/kernels -golden=false -counting -packages '^(test|internal/nflog)$$' -tests '$(or $(TESTS),$(OBSERVE_TESTS))' $(KERNELS)
OBSERVE_TESTS = ^Test(PassiveCheck|Failures|Observed|Refus|ForgetRefusals|Trace|Kernel|Connections|Ends)

.PHONY: test-arm64
test-arm64: ## run tests that need no kernel in an emulator of arm64: bytes for the kernel, golden files, maps and hashes (2 minutes)
	scripts/install-packages qemu-aarch64-static:qemu-user-static git:git
	scripts/test-arm64

# Packets of both families, TCP and UDP: all kinds of addresses, optional features, affinity, a
# table of maglev, changes of the rules below open flows, and restarts of the process.
ARM64_TESTS := ^Test(Features|Affinity|AffinityOutlivesDaemon|RulesOutliveDaemon|FlowsSurviveUpdates|Maglev)$$

.PHONY: test-arm64-machine
test-arm64-machine: ## send packets through an emulated arm64 machine with Debian's kernel 6.12; KERNELS=6.1, TESTS selects others; needs root, Debian and qemu
	scripts/install-packages qemu-system-aarch64:qemu-system-arm qemu-aarch64-static:qemu-user-static
	go run ./test/kernels -arch arm64 -packages '^test$$' -tests '$(or $(TESTS),$(ARM64_TESTS))' $(or $(KERNELS),6.12)

.PHONY: test-package
test-package: ## install, use, upgrade and remove the .deb in an emulated Debian 13 with systemd (5 minutes); needs root and Debian
	scripts/install-packages qemu-system-x86_64:qemu-system-x86 mmdebstrap:mmdebstrap mke2fs:e2fsprogs
	go run ./test/packages

.PHONY: test-ipvs
test-ipvs: ## leave kube-proxy's mode ipvs for nftproxy and return, under load, in an emulated machine whose kernel has IPVS; SCHEDULERS=rr,wrr,lc,sh,mh, RESULTS=FILE.json PAGE=docs/ipvs.md write; needs root and Debian
	scripts/install-packages qemu-system-x86_64:qemu-system-x86 nft:nftables
	cd e2e && SCHEDULERS=$(SCHEDULERS) RESULTS=$(abspath $(RESULTS)) PAGE=$(abspath $(PAGE)) go test -count=1 -v -timeout 0 -run '^TestLeaveIPVS$$' ./ipvs

.PHONY: e2e
e2e: ## run the tests against a real API server (builds it: 8 minutes the first time); NO_SKIP as for test
	cd e2e && go vet ./... && go run $(STATICCHECK) ./... && go mod tidy -diff
	scripts/install-packages $(LAB) iptables-nft:iptables nsenter:util-linux $(BROWSER)
	cd e2e/tools && for module in . */; do go -C $$module mod tidy -diff || exit; done
	cd e2e && programs=$$(mktemp -d) && trap 'rm -rf "$$programs"' EXIT && go run ./programs "$$programs" && \
		E2E_PROGRAMS=$$programs NFTPROXY=$$programs/nftproxy PARALLEL=2 TIMEOUT=30m NO_SKIP=$(NO_SKIP) ../scripts/test \
		$$(go list ./... | grep -v -e /neighbours -e /nodes -e '/\(ipvs\|release\)$$')

# The browser that looks at the page of --web.
BROWSER := /usr/lib/chromium/chromium-headless-shell:chromium-headless-shell

.PHONY: e2e-tools
e2e-tools: ## compile etcd and the Kubernetes programs that e2e runs (minutes the first time)
	cd e2e/tools && for tool in $(E2E_TOOLS); do go tool -n "$$tool" || exit; done

E2E_TOOLS := go.etcd.io/etcd/server/v3 $(addprefix k8s.io/kubernetes/cmd/,kube-apiserver kube-controller-manager kube-proxy kubeadm kubectl)

.PHONY: upgrade
upgrade: build ## upgrade a node from each of the last two releases to this version and back, under load (a minute each); FROM=COMMIT from another one
	scripts/upgrade $(BINARY) '$(FROM)'

.PHONY: soak
soak: ## change thousands of Services at random under load, with restarts and outside changes; SOAK=1h, SOAK_SERVICES=2000, SOAK_SEED, RESULTS=FILE.json adds the run
	scripts/install-packages nft:nftables
	cd e2e && SOAK=$(or $(SOAK),10m) SOAK_SERVICES=$(or $(SOAK_SERVICES),2000) SOAK_SEED=$(SOAK_SEED) RESULTS=$(abspath $(RESULTS)) \
		go test -count=1 -v -timeout 0 -run '^TestSoak$$' ./soak

.PHONY: manifests
manifests: ## check manifests, chart, alerts and packages with kustomize, Helm, Prometheus and lintian (builds some: 3 minutes the first time)
	scripts/install-packages systemd-analyze:systemd dpkg-deb:dpkg lintian:lintian rpm:rpm
	cd deploy/check && go vet ./... && go run $(STATICCHECK) ./... && go mod tidy -diff
	cd deploy/check && NO_SKIP=$(NO_SKIP) ../../scripts/test
	cd tools/release && go vet ./... && go run $(STATICCHECK) ./... && go mod tidy -diff
	cd tools/release && NO_SKIP=$(NO_SKIP) ../../scripts/test .

.PHONY: cover
cover: ## run the tests and print the coverage by function
	scripts/install-packages $(LAB) iptables-nft:iptables strace:strace
	go test -count=1 -coverpkg=./internal/...,./cmd/... -coverprofile=coverage.out ./...
	go tool cover -func=coverage.out

.PHONY: vulncheck
vulncheck: ## look for known vulnerabilities; needs the Internet, or VULNDB=URL of a copy of the database
	VULNDB='$(VULNDB)' scripts/vulncheck $(GOVULNCHECK)

.PHONY: conformance
conformance: conformance-packages ## run Kubernetes' SIG Network tests on real kubelets, and write docs/conformance.md (20 minutes); PROXY=nftproxy,kube-proxy FAMILIES=ipv4 TESTS KEEP=1
	cd e2e && go run ./conformance -document $(abspath docs/conformance.md) $(if $(PROXY),-proxy $(PROXY)) \
		$(if $(FAMILIES),-families $(FAMILIES)) $(if $(TESTS),-focus '$(TESTS)') $(if $(KEEP),-keep)

.PHONY: conformance-smoke
conformance-smoke: conformance-packages ## run a dozen of these tests in one cluster (3 minutes); IF_CACHED=1 only if nothing has to be compiled for them
	cd e2e && go run ./conformance -families dual-ipv6 $(if $(IF_CACHED),-if-cached) -focus '$(CONFORMANCE_SMOKE)'

CONFORMANCE_SMOKE := LocalhostNodePorts|Services should (serve a basic endpoint|serve multiport|be able to create a functioning NodePort|preserve source pod|be able to switch session affinity for NodePort)|Granular Checks: Services should function for (pod|node)-Service|Conntrack should be able to preserve UDP traffic when server pod cycles for a (ClusterIP|NodePort) service$$|HostPort validates|DNS should provide DNS for services

.PHONY: conformance-packages
conformance-packages:
	scripts/install-packages runc:runc /usr/lib/cni/ptp:containernetworking-plugins busybox:busybox iptables:iptables nft:nftables \
		conntrack:conntrack nc.openbsd:netcat-openbsd dig:bind9-dnsutils host:bind9-host iperf:iperf curl:curl wget:wget ip:iproute2

.PHONY: parity
parity: ## compare flags, configuration, gates, metrics, events and packets with kube-proxy's, and write docs/parity.md (3 minutes); needs root
	scripts/install-packages nft:nftables
	cd e2e && PAGE=$(abspath docs/parity.md) go test -count=1 -v -run '^TestParity$$' ./parity

.PHONY: neighbours
neighbours: ## run CNI plugins, firewalls and container engines beside nftproxy, and write docs/compatibility.md; TESTS selects some
	scripts/install-packages nft:nftables iptables-nft:iptables ip:iproute2 dbus-daemon:dbus firewalld:firewalld ufw:ufw containerd:containerd dockerd:docker.io \
		podman:podman /usr/lib/podman/netavark:netavark runc:runc /usr/lib/cni/bridge:containernetworking-plugins \
		bird:bird2 keepalived:keepalived
	cd e2e && COMPATIBILITY=$(abspath docs/compatibility.md) go test -count=1 -v -p 1 -timeout 60m $(if $(TESTS),-run '$(TESTS)') ./neighbours

# What two machines run beside nftproxy.
PAIR := keepalived:keepalived conntrackd:conntrackd ping:iputils-ping ip:iproute2

# What nodes and routers announce addresses by.
SPEAKERS := bird:bird2 /usr/lib/frr/bgpd:frr

.PHONY: pair
pair: ## let one of two machines take over from the other, in ten settings, and write docs/high-availability.md (4 minutes); needs root and Debian
	scripts/install-packages nft:nftables $(PAIR)
	PAGE=$(abspath docs/high-availability.md) go test -count=1 -v -run . -bench '^BenchmarkSwitch$$' -benchtime 1x ./test/pair

.PHONY: ecmp
ecmp: ## serve one address by three nodes behind two ECMP routers, announce it with bird and FRR, and write docs/ecmp.md (3 minutes); needs root and Debian
	scripts/install-packages nft:nftables ip:iproute2 conntrackd:conntrackd $(SPEAKERS)
	PAGE=$(abspath docs/ecmp.md) go test -count=1 -v -run . -bench . -benchtime 1x ./test/ecmp

.PHONY: nodes
nodes: conformance-packages ## run the tests on real kubelets: rolling updates, upgrades, restarts and the migration under load (15 minutes); TESTS selects some
	cd e2e && go test -count=1 -v -timeout 60m $(if $(TESTS),-run '$(TESTS)') ./nodes

# Releases.

PREFIX := /usr/local
UNITDIR = $(PREFIX)/lib/systemd/system

.PHONY: install
install: $(BINARY) ## install the program, its systemd unit, manual pages and completions below PREFIX=/usr/local; UNITDIR, DESTDIR
	install -D -m 755 $(BINARY) '$(DESTDIR)$(PREFIX)/bin/nftproxy'
	install -D -m 644 deploy/systemd/nftproxy.service '$(DESTDIR)$(UNITDIR)/nftproxy.service'
	sed -i 's,/usr/bin/nftproxy,$(PREFIX)/bin/nftproxy,' '$(DESTDIR)$(UNITDIR)/nftproxy.service'
	scripts/share '$(abspath $(BINARY))' '$(abspath $(DESTDIR)$(PREFIX)/share)'

.PHONY: image
image: ## build the container image with Docker; "make release" needs none
	docker build -f deploy/Dockerfile --build-arg VERSION=$(VERSION) -t nftproxy:$(VERSION) .

.PHONY: packages
packages: build ## build packages (.deb, .rpm) of bin/nftproxy in dist/
	arch=$$(go env GOARCH) && install -D $(BINARY) dist/nftproxy-linux-$$arch && ARCHITECTURES=$$arch scripts/packages '$(VERSION)' dist

.PHONY: release
release: ## build programs, packages, image and chart for amd64 and arm64, with bills of materials (SBOM) and checksums, in dist/
	scripts/release '$(VERSION)' dist

.PHONY: release-try
release-try: conformance-packages ## build a release twice, publish it to a registry of its own, verify, run and install it, also in a cluster of real kubelets, and see changed ones refused (10 minutes, and 20 to compile cosign and Kubernetes the first time); needs root and Debian
	scripts/install-packages jq:jq git:git qemu-aarch64-static:qemu-user-static
	scripts/release-try

.PHONY: reproducible
reproducible: ## build the committed source twice, from scratch, and compare byte for byte (minutes); ARCHITECTURES=amd64
	ARCHITECTURES='$(ARCHITECTURES)' scripts/reproducible

# Measurements.

.PHONY: bench
bench: ## measure nftproxy on the real kernel; SCENARIO=A,B selects, RUNS=3 repeats, RESULTS=FILE.json saves
	go run ./bench -version '$(VERSION)' -runs $(or $(RUNS),1) $(if $(SCENARIO),-scenario $(SCENARIO)) $(if $(RESULTS),-o $(RESULTS))

.PHONY: bench-sweep
bench-sweep: ## the same with 100 to SWEEP=100000 Services of 4 endpoints
	go run ./bench -version '$(VERSION)' -runs $(or $(RUNS),1) -sweep $(or $(SWEEP),100000) $(if $(RESULTS),-o $(RESULTS))

.PHONY: bench-tables
bench-tables: build ## measure all that docs/performance.md shows and that is of an earlier source (hours), and write its tables and plots; TABLES=NAME,KIND selects (TABLES=? lists), RUNS=3 repeats, QUICK=1 tries each row in a minute
	VERSION='$(VERSION)' go run ./bench/tables $(if $(filter ?,$(TABLES)),-list,$(if $(TABLES),-only '$(TABLES)')) $(if $(QUICK),-quick) $(if $(RUNS),-runs $(RUNS))

.PHONY: bench-report
bench-report: ## generate plots and tables from docs/performance/*.json; ACCEPT=TABLE,TABLE WHY=REASON keeps figures of an earlier source
	go run ./bench plot docs/performance docs/performance/*.json
	go run ./bench table -w docs/performance.md -w docs/scale.md $(if $(ACCEPT),-accept '$(ACCEPT)' -why '$(WHY)') docs/performance/*.json

.PHONY: bench-kernels
bench-kernels: ## measure starts on Debian's kernels, in virtual machines that count instructions (20 minutes); KERNELS=6.1, SCENARIO=1000x4, RESULTS=FILE.json saves
	scripts/install-packages qemu-system-x86_64:qemu-system-x86
	CGO_ENABLED=0 go run ./bench -version '$(VERSION)' -starts -kernels $(subst $() ,$(comma),$(or $(KERNELS),6.1 6.12)) -scenario $(or $(SCENARIO),1000x4$(comma)3000x4$(comma)10000x4) $(if $(RESULTS),-o $(RESULTS))

.PHONY: bench-datapath
bench-datapath: ## measure what rules cost packets, for nftproxy and kube-proxy; DATAPATH_SERVICES=30000, RESULTS=FILE.json saves
	scripts/install-packages nft:nftables
	cd e2e && RESULTS=$(abspath $(RESULTS)) go test -run '^$$' -bench DataPath -benchtime 1x -timeout 90m ./datapath

.PHONY: bench-flows
bench-flows: ## measure what a new flow costs over TCP and UDP, with affinity, limits and counters, for nftproxy and kube-proxy (6 minutes); FLOW_SERVICES=1,1000,30000, RESULTS=FILE.json saves
	scripts/install-packages nft:nftables
	cd e2e && RESULTS=$(abspath $(RESULTS)) FLOW_SERVICES=$(FLOW_SERVICES) go test -run '^$$' -bench '^BenchmarkFlows$$' -benchtime 1x -timeout 90m ./datapath

.PHONY: bench-converge
bench-converge: conformance-packages ## measure the time from the API server to the kernel on a node of kube-proxy and two of nftproxy in one cluster of real kubelets, beside converge, and write the table of docs/kubectl.md (6 minutes)
	cd e2e && PAGE=$(abspath docs/kubectl.md) go test -count=1 -timeout 60m -run '^$$' -bench '^BenchmarkKernelTimes$$' -benchtime 1x ./nodes

.PHONY: bench-balancers
bench-balancers: build ## compare with nft by hand, nftlb and HAProxy (20 minutes); BALANCERS=nftproxy,HAProxy MEASURE=failover, RUNS=5, MACHINE=1 in a virtual machine, with IPVS and keepalived, RESULTS=FILE.json saves
	scripts/install-packages nft:nftables haproxy:haproxy nftlb:nftlb $(if $(MACHINE),qemu-system-x86_64:qemu-system-x86)
	go run ./bench/balancers -nftproxy '$(abspath $(BINARY))' -runs $(or $(RUNS),$(if $(MACHINE),1,5)) $(if $(MACHINE),-machine -span 300ms -pace 50) \
		$(if $(BALANCERS),-only '$(BALANCERS)') $(if $(MEASURE),-measure $(MEASURE)) $(if $(RESULTS),-o $(RESULTS))

.PHONY: bench-features
bench-features: build ## measure what each optional feature costs a new connection (7 minutes); FEATURES=ROW,ROW selects, SERVICES=1000, RUNS=5, MACHINE=6.12 counts instructions in a virtual machine with that kernel, RESULTS=FILE.json saves
	$(if $(MACHINE),scripts/install-packages qemu-system-x86_64:qemu-system-x86)
	CGO_ENABLED=0 go run ./bench/features -nftproxy '$(abspath $(BINARY))' -services $(or $(SERVICES),1000) -runs $(or $(RUNS),$(if $(MACHINE),1,5)) $(if $(FEATURES),-only '$(FEATURES)') \
		$(if $(MACHINE),-machine $(MACHINE) -rounds 4 -connections 300) $(if $(RESULTS),-o $(RESULTS))

.PHONY: bench-program
bench-program: ## measure the size of the program by parts, and what its start costs; RUNS=20, RESULTS=FILE.json saves
	go run ./scripts/size -version '$(VERSION)' -runs $(or $(RUNS),20) $(if $(RESULTS),-o $(RESULTS))

.PHONY: bench-checks
bench-checks: build ## measure what health checks of ENDPOINTS=1000,10000 cost the daemon, with INTERVALS=5s,2s (6 minutes); ROUNDS=6, RUNS=3, RESULTS=FILE.json saves
	go run ./bench/checks -nftproxy '$(abspath $(BINARY))' -endpoints $(or $(ENDPOINTS),1000$(comma)10000) -intervals $(or $(INTERVALS),5s$(comma)2s) \
		-rounds $(or $(ROUNDS),6) -runs $(or $(RUNS),3) $(if $(RESULTS),-o $(RESULTS))

.PHONY: bench-files
bench-files: build ## measure the memory with the objects of a file of SERVICES=10000, and what an edit costs (20 minutes); REST=35s before memory is read again, RUNS=3, RESULTS=FILE.json saves
	go run ./bench/files -nftproxy '$(abspath $(BINARY))' -services $(or $(SERVICES),10000) -rest $(or $(REST),35s) -runs $(or $(RUNS),3) $(if $(RESULTS),-o $(RESULTS))

.PHONY: bench-compare
bench-compare: ## compare nftproxy and kube-proxy on one API server; COMPARE_SERVICES=100,1000,10000, COMPARE_TIME=1m for each kind of change, RESULTS=FILE.json saves
	scripts/install-packages nft:nftables
	cd e2e && RESULTS=$(abspath $(RESULTS)) go test -run '^$$' -bench '^BenchmarkCompare$$' -benchtime 1x -timeout 90m ./compare

.PHONY: bench-start
bench-start: ## measure starts of the process beside a bare list by client-go; COMPARE_SERVICES=100,10000, RESULTS=FILE.json saves
	scripts/install-packages nft:nftables
	cd e2e && RESULTS=$(abspath $(RESULTS)) go test -run '^$$' -bench '^BenchmarkStart$$' -benchtime 1x -timeout 90m ./compare

.PHONY: bench-churn
bench-churn: ## compare nftproxy and kube-proxy at rest and under 500 changes/s; COMPARE_SERVICES=3000, COMPARE_RUNS=5, COMPARE_TIME=1m, REST_TIME=2m, RESULTS=FILE.json saves
	scripts/install-packages nft:nftables
	cd e2e && RESULTS=$(abspath $(RESULTS)) go test -run '^$$' -bench '^BenchmarkChurn$$' -benchtime 1x -timeout 90m ./compare

.PHONY: bench-period
bench-period: ## measure costs and benefits of --min-sync-period under continuous changes; variables as for bench-churn
	scripts/install-packages nft:nftables
	cd e2e && RESULTS=$(abspath $(RESULTS)) go test -run '^$$' -bench '^BenchmarkSyncPeriod$$' -benchtime 1x -timeout 90m ./compare

.PHONY: bench-pods
bench-pods: ## measure pod churn if all addresses serve NodePorts, for nftproxy and kube-proxy; RESULTS=FILE.json saves
	scripts/install-packages nft:nftables
	cd e2e && RESULTS=$(abspath $(RESULTS)) go test -run '^$$' -bench '^BenchmarkPods$$' -benchtime 1x -timeout 90m ./compare

.PHONY: bench-scale
bench-scale: ## measure what the API server pays for watchers; SCALE_WATCHERS=100,1000 SCALE_SERVICES=1000, RESULTS=FILE.json saves
	scripts/install-packages nft:nftables
	cd e2e && RESULTS=$(abspath $(RESULTS)) SCALE_WATCHERS=$(SCALE_WATCHERS) SCALE_SERVICES=$(SCALE_SERVICES) \
		go test -run '^$$' -bench '^BenchmarkWatchers$$' -benchtime 1x -timeout 90m ./scale

.PHONY: bench-node
bench-node: conformance-packages ## measure a node of 250 pods that change without pause, among 5,000 Services, for nftproxy and kube-proxy; NODE_TIME=10m, RESULTS=FILE.json saves
	cd e2e && RESULTS=$(abspath $(RESULTS)) NODE_TIME=$(NODE_TIME) go test -run '^$$' -bench '^BenchmarkNode$$' -benchtime 1x -timeout 90m ./nodes

.PHONY: bench-affinity
bench-affinity: ## measure session affinity under attack by forged clients; AFFINITY_CLIENTS=1000000, AFFINITY_RATE=20000 new ones a second
	scripts/install-packages nft:nftables
	AFFINITY_CLIENTS=$(or $(AFFINITY_CLIENTS),1000000) AFFINITY_RATE=$(AFFINITY_RATE) \
		go test -count=1 -v -parallel 1 -timeout 0 -run '^TestAffinityUnderAttack$$' ./test

.PHONY: bench-go
bench-go: ## run the benchmarks of the packages; BENCH selects some by a regular expression
	go test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem ./...
