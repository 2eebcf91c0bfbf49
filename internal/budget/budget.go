// Package budget limits what an object may cost. Users who may write a Service or an EndpointSlice must not be able
// to keep a node busy, or to fill its memory, with one: the constants are the only place where such limits are
// defined, and [Limits] says of each what happens beyond it. docs/budgets.md shows the same table.
package budget

// Text, before it is decoded.
const (
	ObjectSize    = 16 << 20
	FileSize      = 64 << 20
	FileObjects   = 250_000
	FileObject    = 16 << 20
	FileValues    = 250_000
	CheckText     = 4096
	CheckValues   = 256
	ListEntries   = 32_768
	AliasedValues = 1_000_000
	AliasNesting  = 100
	ExplainedText = 1 << 20
	Description   = 200
)

// What is reported about an object.
const (
	Findings          = 100
	ReportedFindings  = 20
	WrongEntries      = 10
	FindingText       = 500
	QuotedText        = 128
	Conflicts         = 3
	ConflictAddresses = 20
	EventNotices      = 20
	HealthEvents      = 20
	FailureEvents     = 20
	HealthLines       = 20
	ObjectLines       = 200
)

// Values that become rules, and elements of sets and maps.
const (
	PortRanges   = 1024
	BalancePorts = 1024
	// MasqueradeAddresses is for addresses of both families together.
	MasqueradeAddresses = 16
	Connections         = 50_000
	ClientLimits        = 1000
	LimitedClients      = 1 << 16
	CountedRefusals     = 1 << 16
	Sampled             = 1 << 12
	WeightSlots         = 4096
	WeightSlotsEach     = 16
	MaglevSlots         = 16_384
	MaglevSlotsNode     = 1_000_000
)

// Announcements of an address of a Balance in a second, after the first five.
const Announcements = 1

// SlowStart is the longest time of a slow start, in seconds.
const SlowStart = 3600

// Health checks. A tenth of 10,000 endpoints may hang, at the default interval and timeout, before others wait.
const (
	Checks        = 1024
	CheckPrograms = 32
	CheckAnswer   = 64 << 10
	CheckHeaders  = 64 << 10
	CheckError    = 200
)

// ChangePrograms is how many programs for changes of Balances run at the same time.
const ChangePrograms = 8

// Names of servers, which files may have (Balance). A name with the least TTL is one question a
// second for each family.
const (
	Names         = 1000
	NameAddresses = 64
	NameAnswer    = 16 << 10
	NameQueries   = 32
)

// Questions about drained endpoints.
const (
	DrainTargets = 10_000
	DrainSearch  = 100_000
	DrainOffered = 1_000
)

// Answers of a running nftproxy to commands. [IsDense] limits the values of a document.
const (
	Answer         = 128 << 20
	NodeAnswer     = 16 << 20
	AnswerProblems = 250_000
)

// Requests that are answered at the same time, by the process that runs: those of one page, those of
// the live view, those that wait for events, and scrapes of metrics.
const (
	PageRequests     = 2
	LiveRequests     = 4
	FollowerRequests = 8
	ScrapeRequests   = 4
)

// Connections that this process relays, each with two sockets and two pipes, the bytes of its memory that they take
// (TestMemory of package relay), the servers that are tried for one, and the longest time without data, in hours.
const (
	RelayConnections = 16_384
	RelayMemory      = RelayConnections * 48 << 10
	RelayTries       = 3
	RelayTimeout     = 720
)

// PoolServers limits servers of a Balance with lists of servers (kind Servers): a file may name a long
// list many times.
const PoolServers = 16_384

// RuntimeChanges limits the changes of servers that no file has.
const RuntimeChanges = 1_000

// EndpointSeries limits counts: each endpoint of a service port is a series of Prometheus,
// with a name that ends with the endpoint.
const EndpointSeries = 2_000

// RefusalSeries limits series likewise: any client can make one, for each Service.
const RefusalSeries = 2_000

// SampledServices limits the Services with series of samples, three each.
const SampledServices = 1_000

// Outcome is what happens beyond a limit.
type Outcome string

// Outcomes, from what a user notices most to least.
const (
	// Refused means that the value has no effect, and one problem of the object says so.
	Refused Outcome = "refused"
	// NewestLose means that the values of older objects stay in effect, and one notice says so
	// for each of the others.
	NewestLose Outcome = "the newest lose"
	// FirstCount means that the others are not used, and one line counts them.
	FirstCount Outcome = "the first count"
	// Smaller means that the next smaller size is used.
	Smaller Outcome = "a smaller size"
	// Cut means that only the beginning is used.
	Cut Outcome = "cut"
	// OldestEnd means that old ones end to make room for new ones, and the client with the most loses first.
	OldestEnd Outcome = "the oldest end"
	// Wait means that the others wait.
	Wait Outcome = "the others wait"
)

// Limit is a row of the table.
type Limit struct {
	Name   string // of the constant
	What   string // is limited
	Of     string // whose
	Most   int
	Unit   string // of Most
	Beyond Outcome
	Effect string // of the outcome
}
