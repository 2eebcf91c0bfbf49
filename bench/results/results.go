// Package results is what benchmarks write down: a file of records in JSON,
// which says on which machine, when and with which versions they were made.
// Everything that measures writes this form, so that tables and plots can put
// the figures of several benchmarks side by side.
package results

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// File is what one run of a benchmark found.
type File struct {
	Machine Machine `json:"machine"`
	// Date is the end of the run.
	Date time.Time `json:"date"`
	// Versions are those of the programs that took part, by name.
	Versions map[string]string `json:"versions"`
	// Layout identifies the rules of nftproxy, as package layout computes it; empty: not
	// known.
	Layout string `json:"layout,omitempty"`
	// Load is the load average of the machine at the end of the run, with the
	// benchmark itself; zero: not known.
	Load    float64  `json:"load,omitempty"`
	Records []Record `json:"records"`
}

// Record is what was found for one operation of one program at one size. What
// was not measured is nil.
type Record struct {
	Program Program `json:"program"`
	// Scenario names the size and the kind of Services; empty: nothing but the
	// size is to be said.
	Scenario string `json:"scenario,omitempty"`
	Services int    `json:"services"`
	// Endpoints is the number of endpoints of each Service.
	Endpoints int `json:"endpoints"`
	// Watchers is the number of proxies that read the objects from the API server.
	Watchers  int       `json:"watchers,omitempty"`
	Operation Operation `json:"operation"`
	// From is where the measurement begins. It ends when the kernel has the
	// rules, if there are rules to change. For memory it says what the process
	// holds: FromSnapshot only what is needed to change rules, FromWrite also
	// what is needed to follow an API server.
	From From `json:"from,omitempty"`
	// Seconds is how long the operation takes.
	Seconds *Distribution `json:"seconds,omitempty"`
	// Ratios are how many times longer the operation takes than others, each
	// computed from one run.
	Ratios map[Operation]*Distribution `json:"ratios,omitempty"`
	// PerSecond is how often the operation is done in a second.
	PerSecond *Distribution `json:"perSecond,omitempty"`
	// Processor is the processor time used in a second, in seconds: 1 is one core.
	Processor *Distribution `json:"processor,omitempty"`
	// Rate is how many changes a second are asked for; zero: one after the other.
	Rate float64 `json:"rate,omitempty"`
	// Period is the minimum time between two syncs, in seconds; zero: that of the
	// program's default. Of health checks it is the interval; zero: there are none.
	Period float64 `json:"period,omitempty"`
	// Sockets are those that the program has open, at each of many looks.
	Sockets *Distribution `json:"sockets,omitempty"`
	Work    *Work         `json:"work,omitempty"`
	// Memory is that of the program, or of the API server where there is Server.
	Memory *Memory `json:"memory,omitempty"`
	// Rested is the memory after a rest, in which the program returns what the operation has needed.
	Rested *Memory `json:"rested,omitempty"`
	// Server is what the API server spends on all watchers.
	Server *Server `json:"server,omitempty"`
	Soak   *Soak   `json:"soak,omitempty"`

	// Place names the machine if it is a virtual one, whose figures compare only with
	// each other.
	Place string `json:"place,omitempty"`
	// Cost is the processor time of one operation, in seconds, for all processes that
	// take part in it.
	Cost *Distribution `json:"cost,omitempty"`
	// Part is a part of the program itself, which the scenario names.
	Part *Part `json:"part,omitempty"`
	// Counted is set if nftproxy counts the connections to each frontend and endpoint.
	Counted bool `json:"counted,omitempty"`
	// Added is how much more than a baseline Cost is, in seconds, each computed from one
	// round.
	Added *Distribution `json:"added,omitempty"`
	// Tail are the 99th percentiles of the runs, in seconds.
	Tail     *Distribution `json:"tail,omitempty"`
	Failover *Failover     `json:"failover,omitempty"`
}

// Program is what was measured.
type Program string

const (
	Nftproxy  Program = "nftproxy"
	KubeProxy Program = "kube-proxy"
	// Reflectors are those of client-go alone, which keep the objects.
	Reflectors Program = "reflectors of client-go"
	// NoRules is the data path without any rules.
	NoRules Program = "no rules"
	// OneRule is the data path with a single dnat rule, written by hand.
	OneRule Program = "one dnat rule"
)

// Operation is what the program was made to do.
type Operation string

const (
	// KernelAlone is what the kernel needs for the bytes of a cold start: they
	// are recorded and sent again.
	KernelAlone Operation = "kernel alone"
	// KernelAloneReplace is the same for a replaced endpoint.
	KernelAloneReplace Operation = "kernel alone, replace an endpoint"
	// ColdStart is the first sync of a node without rules.
	ColdStart Operation = "cold start"
	// Restart is the first sync of a process that finds the rules as they
	// should be.
	Restart Operation = "restart, nothing changed"
	// Resume is the same with the record that the process before has left.
	Resume          Operation = "restart with a record"
	ReplaceEndpoint Operation = "replace an endpoint"
	// ScaleUp and ScaleDown give a Service one endpoint more or less.
	ScaleUp       Operation = "scale a service up by one"
	ScaleDown     Operation = "scale a service down by one"
	AddService    Operation = "add a service"
	DeleteService Operation = "delete a service"
	// RandomChange is one of many changes of mixed kinds.
	RandomChange Operation = "random change"
	// MemoryUse is no action: it is the memory of the process after the
	// changes.
	MemoryUse Operation = "memory"
	// ListObjects reads all Services and EndpointSlices from an API server.
	ListObjects Operation = "list the objects"
	// LoadRules is the transaction of a cold start.
	LoadRules Operation = "load the rules"
	// ListAndLoad is the least that a cold start consists of.
	ListAndLoad Operation = "list the objects and load the rules"
	// Rest is no action: it is what the process does while nothing changes. Its
	// PerSecond are wakeups of threads.
	Rest Operation = "rest"
	// Churn replaces endpoints without a pause, at a rate. Its PerSecond are
	// transactions.
	Churn Operation = "continuous changes"
	// LongRun is many changes, disturbances and requests, as [Soak] counts them.
	LongRun Operation = "long run"
	// Connect opens a connection, exchanges something over it and closes it.
	Connect Operation = "connect"
	// RoundTrip exchanges something over a connection that is open.
	RoundTrip Operation = "round trip"
)

// Unobserved is the scenario without an observer of the kernel, which would slow
// down the transactions.
const Unobserved = "unobserved"

// Operations of the watchers of an API server.
const (
	// WatchRestart starts all watchers, each with a new connection and no objects;
	// the others spread that over some seconds.
	WatchRestart   Operation = "all proxies restart"
	WatchRestart5  Operation = "all proxies restart within 5 s"
	WatchRestart30 Operation = "all proxies restart within 30 s"
	// WatchList reads the objects in lists, compressed and not, in place of streams.
	WatchList      Operation = "all proxies restart, with lists"
	WatchPlainList Operation = "all proxies restart, with lists that are not compressed"
	// WatchResume opens all connections and continues the watches.
	WatchResume Operation = "all watches resume over new connections"
	// WatchIdle is a second without changes.
	WatchIdle Operation = "a second without changes"
	// WatchReplace changes a slice of 4 endpoints.
	WatchReplace Operation = "one endpoint of 4 replaced"
	// WatchRollout replaces the 100 pods of a Service by 400 changes of its slice.
	WatchRollout Operation = "rolling update of 100 endpoints"

	// BalancedConnection is a request over a connection of its own, BalancedRequest one
	// over a connection that is kept, and BalancedGigabit so much data, all of them
	// through a load balancer.
	BalancedConnection Operation = "connection through a balancer"
	BalancedRequest    Operation = "request through a balancer"
	BalancedGigabit    Operation = "Gbit through a balancer"
	// BalancerStart is from the start of the process until the last service answers.
	BalancerStart Operation = "start of a balancer"
	// BalancerChange is from the change of a service until the new endpoint answers.
	BalancerChange Operation = "endpoint of a balancer replaced"
	// BalancerFailover is the failure of one of three servers.
	BalancerFailover Operation = "server of a balancer fails"

	// FeatureConnection is a connection to a Service, with or without an optional
	// feature, which the scenario names. Its ratios name baselines in place of
	// operations.
	FeatureConnection Operation = "connection by feature"

	// ProgramSize is no action: it is the size of a part of the program.
	ProgramSize Operation = "size of the program"
	// ProgramStart is a start of the program that does nothing else, and ProgramInit the
	// initialization of a package in it.
	ProgramStart Operation = "start of the program"
	ProgramInit  Operation = "initialization"

	// NewFlow is a new TCP connection, or the first datagrams from a port of UDP. Its
	// ratios name programs in place of operations.
	NewFlow Operation = "new flow"

	// HealthChecks is no action: it is what the process does while endpoints are checked.
	// Its PerSecond are checks.
	HealthChecks Operation = "health checks"

	// What nftproxy does with a file; Cost is the processor time of one start, command or edit.
	FileStart   Operation = "the start"
	FileStatus  Operation = "status -o json"
	FileEdits   Operation = "ten edits"
	FileMistake Operation = "a mistake and its correction"

	// NodePods replaces pods of a node that has 250, without pause.
	NodePods Operation = "pods of a full node replaced without pause"
)

// From is the moment at which a measurement begins.
type From string

const (
	// FromSnapshot: the source knows the objects.
	FromSnapshot From = "snapshot"
	// FromWrite: the object is written to the API server.
	FromWrite From = "API write"
	// FromEvent: the API server's event about the object arrives at a watch.
	FromEvent From = "API event"
	// FromProcess: the process is started.
	FromProcess From = "process start"
)

// Work is what an operation costs besides time, on average.
type Work struct {
	Allocations    float64 `json:"allocations"`
	AllocatedBytes float64 `json:"allocatedBytes"`
	// Transactions may be several, so that the data path has no gap.
	Transactions float64 `json:"transactions"`
	// Changes are those of elements, chains and sets.
	Changes float64 `json:"changes"`
	// NetlinkBytes are those of all transactions, without message headers.
	NetlinkBytes float64 `json:"netlinkBytes"`
}

// Server is what an API server spends on an operation.
type Server struct {
	Seconds  float64 `json:"seconds"`            // until all watchers are done
	CPU      float64 `json:"cpu"`                // processor time in seconds
	Bytes    float64 `json:"bytes"`              // sent to watchers, with TLS
	Rejected int64   `json:"rejected,omitempty"` // requests answered with 429
}

// Memory is that of a process, in bytes.
type Memory struct {
	// Resident is VmRSS after everything was done.
	Resident uint64 `json:"resident"`
	// Anonymous is RssAnon, the part of Resident that is in no file; zero: not known.
	Anonymous uint64 `json:"anonymous,omitempty"`
	// Peak is VmHWM, the most that was ever resident; zero: not measured.
	Peak uint64 `json:"peak,omitempty"`
	// HeapInUse is what the Go heap holds; zero: not known.
	HeapInUse uint64 `json:"heapInUse,omitempty"`
	// Live is the size of the objects on the heap; zero: not known.
	Live uint64 `json:"live,omitempty"`
	// Kernel is what the kernel has allocated meanwhile; zero: not known.
	Kernel int64 `json:"kernel,omitempty"`
	// Started is VmRSS after the start, before any change; zero: not known.
	Started uint64 `json:"started,omitempty"`
}

// Part is a part of a program, in bytes.
type Part struct {
	File int64 `json:"file,omitempty"` // the whole file
	Code int64 `json:"code,omitempty"`
	Data int64 `json:"data,omitempty"`
}

// Scenarios of ProgramSize that are not parts, but all of it.
const (
	StrippedProgram = "the program, stripped"
	WholeProgram    = "the program with symbols"
)

// Failover is what the failure of one of three servers costs. Seconds of the record
// is when the last request began that failed, after the failure.
type Failover struct {
	Requests *Distribution `json:"requests"` // that began after the failure
	Failed   *Distribution `json:"failed"`
	Slowest  *Distribution `json:"slowest"` // answer, in seconds
	// Curve has the requests of one run that failed by the end of each [CurveStep].
	Curve []int `json:"curve,omitempty"`
}

// CurveStep is the time between two points of a curve.
const CurveStep = 100 * time.Millisecond

// Soak is a long run under changes, traffic, restarts and disturbances.
type Soak struct {
	Seconds      float64 `json:"seconds"`
	Changes      int     `json:"changes"` // of objects
	Disturbances int     `json:"disturbances"`
	Requests     int     `json:"requests"`
	Lost         int     `json:"lost"` // without the answer that was wanted
	// First and Last are medians of the first and the last third of the samples of
	// one process, Watched the time from the first sample to the last, in seconds.
	Watched float64 `json:"watched"`
	First   Held    `json:"first"`
	Last    Held    `json:"last"`
	// Growth of Held.Anonymous in an hour, by least squares over all samples.
	Growth float64 `json:"growth"`
}

// Held is what a process holds while nothing changes.
type Held struct {
	Anonymous uint64 `json:"anonymous"` // bytes of memory that is not of files
	Heap      uint64 `json:"heap"`      // bytes in use after a garbage collection
	Files     int    `json:"files"`     // except listening sockets
	// Goroutines are those that do not belong to listening sockets.
	Goroutines int `json:"goroutines"`
}

// Write writes the file, indented so that changes can be read.
func (f *File) Write(path string) error {
	text, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Read reads files that Write has written.
func Read(paths ...string) ([]*File, error) {
	var all []*File
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read results: %w", err)
		}
		f := &File{}
		if err := json.Unmarshal(text, f); err != nil {
			return nil, fmt.Errorf("read results %s: %w", path, err)
		}
		all = append(all, f)
	}
	return all, nil
}
