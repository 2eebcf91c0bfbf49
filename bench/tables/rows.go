package main

// row is a file of results and the target that measures it.
type row struct {
	name   string
	kind   string // selects several rows
	file   string // in docs/performance
	target string // of make
	full   string // variables of make
	quick  string // the same for a try of everything
	takes  string // on two cores, as people read it
	// code are the files that measure.
	code []string
}

// Kinds of rows.
const (
	alone     = "alone"     // nftproxy
	beside    = "beside"    // kube-proxy
	balancing = "balancing" // other load balancers
)

// rows are in the order in which they are measured: short ones first, and what needs other
// programs last.
var rows = []row{
	{"program", alone, "program.json", "bench-program", "", "RUNS=1", "a minute", []string{"scripts/size"}},
	{"nftproxy", alone, "nftproxy.json", "bench", "RUNS=3", "RUNS=1 SCENARIO=60x4", "4 minutes", own},
	{"sweep", alone, "sweep.json", "bench-sweep", "RUNS=3", "RUNS=1 SWEEP=100", "2 minutes", own},
	{"features", alone, "features.json", "bench-features", "RUNS=5", "RUNS=1 SERVICES=60 FEATURES='session affinity'", "4 minutes", []string{"bench/features", "bench/flow"}},
	{"million", alone, "scenario-e.json", "bench", "RUNS=1 SCENARIO=E", "RUNS=1 SCENARIO=50x1", "2 minutes", own},
	{"kernels", alone, "kernels.json", "bench-kernels", "", "KERNELS=6.1 SCENARIO=60x4", "20 minutes", append([]string{"bench/guest", "test/debian"}, own...)},
	{"checks", alone, "checks.json", "bench-checks", "", "ENDPOINTS=40 INTERVALS=100ms ROUNDS=2 RUNS=1", "9 minutes", []string{"bench/checks"}},
	{"files", alone, "files.json", "bench-files", "", "SERVICES=60 REST=1s RUNS=1", "20 minutes", []string{"bench/files"}},
	{"flows", beside, "flows.json", "bench-flows", "", "FLOW_SERVICES=1", "6 minutes", []string{"e2e/datapath", "bench/flow"}},
	{"datapath", beside, "datapath.json", "bench-datapath", "", "DATAPATH_SERVICES=60", "15 minutes", []string{"e2e/datapath"}},
	{"compare", beside, "compare.json", "bench-compare", "COMPARE_SERVICES=1000,3000,10000", "COMPARE_SERVICES=60 COMPARE_TIME=1s", "an hour", []string{"e2e/compare"}},
	{"start", beside, "start.json", "bench-start", "", "COMPARE_SERVICES=60", "3 minutes", []string{"e2e/compare"}},
	{"churn", beside, "churn.json", "bench-churn", "", "COMPARE_SERVICES=1000 COMPARE_RUNS=1 COMPARE_TIME=1s REST_TIME=1s", "an hour", []string{"e2e/compare"}},
	{"period", beside, "period.json", "bench-period", "", "COMPARE_SERVICES=1000 COMPARE_RUNS=1 COMPARE_TIME=1s", "40 minutes", []string{"e2e/compare"}},
	{"scale", beside, "scale.json", "bench-scale", "", "SCALE_WATCHERS=5 SCALE_SERVICES=10", "30 minutes", []string{"e2e/scale"}},
	{"soak", alone, "soak.json", "soak", "SOAK=2h SOAK_SERVICES=2000", "SOAK=20s SOAK_SERVICES=60", "2 hours", []string{"e2e/soak"}},
	{"soak-large", alone, "soak-large.json", "soak", "SOAK=50m SOAK_SERVICES=20000", "SOAK=20s SOAK_SERVICES=60", "55 minutes", []string{"e2e/soak"}},
	{"balancers", balancing, "balancers.json", "bench-balancers", "", "RUNS=1 BALANCERS=nftproxy MEASURE=traffic", "20 minutes", []string{"bench/balancers"}},
	{"fast-path", alone, "fast-path.json", "bench-balancers", fastPath, fastPath, "10 minutes", []string{"bench/balancers"}},
	{"balancers-virtual", balancing, "balancers-virtual.json", "bench-balancers", "MACHINE=1", "MACHINE=1 BALANCERS=nftproxy MEASURE=traffic", "20 minutes", []string{"bench/balancers"}},
}

// fastPath measures the fast path beside the rules and beside a router without any.
const fastPath = "MACHINE=1 MEASURE=traffic BALANCERS='none,nftproxy,nftproxy with its fast path'"

// own are the files of make bench.
var own = []string{":(glob)bench/*.go"}

// sources are the files of nftproxy, which every row measures.
var sources = []string{"cmd", "internal", "go.mod", ":(exclude)*_test.go"}
