package api

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// BasisVersion is the version of a [Basis]. Another one means that fields do not have the
// meaning that this program knows.
const BasisVersion = 1

// Basis has the facts, besides its objects, that decide over the rules of a daemon: with it, a dry run on the same
// input comes to the same rules.
type Basis struct {
	APIVersion Version `json:"apiVersion"`
	Version    int     `json:"version"`
	// Settings are the flags that the rules depend on, with their effective values.
	Settings map[string]string `json:"settings"`
	Families []string          `json:"families"`           // of the machine
	NoLimits bool              `json:"noLimits,omitempty"` // the kernel cannot limit connections
	// InterfaceAddresses are the addresses of the machine, if rules depend on them.
	InterfaceAddresses []netip.Addr `json:"interfaceAddresses,omitempty"`
	// Links are the networks of its interfaces, likewise.
	Links []netip.Prefix `json:"links,omitempty"`
	// UntrackedLogs reports that the kernel adds no connection to what rules log.
	UntrackedLogs bool `json:"untrackedLogs,omitempty"`
	// Files and Cluster report where the objects come from.
	Files   bool `json:"files"`
	Cluster bool `json:"cluster"`
	// Words are the words for all that the node serves: balance, mixed, or absent for Services.
	Words words.Vocabulary `json:"words,omitzero"`
	// Failing are the endpoints that fail their health check.
	Failing []model.FailingCheck `json:"failing"`
	// Drained is the list in force of endpoints that are drained.
	Drained []model.DrainEntry `json:"drained"`
	// Changes are the changes of servers in force that no file has.
	Changes []model.RuntimeChange `json:"changes,omitempty"`
	// Names are the addresses that the names of servers have.
	Names []model.ResolvedName `json:"names,omitempty"`
	// Starting are the endpoints that start slowly.
	Starting []model.StartingEndpoint `json:"starting,omitempty"`
	// Isolates reports that files with mistakes do not keep the others from being used.
	// InForce are those that are not used as they are.
	Isolates bool            `json:"isolates,omitempty"`
	InForce  []model.InForce `json:"inForce,omitempty"`
	// Kept are Services that the kernel serves as before: they may be in a part of the source that was
	// never read, or the kernel refuses their rules.
	Kept []KeptService `json:"kept,omitempty"`
}

// Serves reports whether the machine of the daemon has a family.
func (b *Basis) Serves(f model.Family) bool {
	return slices.Contains(b.Families, f.String())
}

// KeptService names a Service as rules do: a name of more than 100 bytes may be cut.
type KeptService struct {
	model.ServiceRef
	Refused bool `json:"refused,omitempty"` // by the kernel
}

// Comparison lists, by object, where the kernel differs from the rules that a daemon wants.
type Comparison struct {
	APIVersion Version `json:"apiVersion"`
	Version    string  `json:"version"` // of nftproxy
	// Compared is when the kernel was read. A daemon reads it for this at most once in
	// [CompareEvery].
	Compared time.Time `json:"compared,omitzero"`
	// Unsettled is why the kernel was not compared: changes are being applied. Empty: it was.
	Unsettled string `json:"unsettled,omitempty"`
	// Differences are changes that would make the kernel hold what is wanted, the first ones
	// of Count.
	Differences []Difference `json:"differences"`
	Count       int          `json:"count"`
	// Digests identify the wanted rules by Service, as namespace/name; "" are the rules that
	// Services share. Only the same version of nftproxy makes the same ones.
	Digests map[string]string `json:"digests,omitempty"`
	// Elements of the requested Service, as nft prints them.
	Elements []string `json:"elements,omitempty"`
}

// CompareEvery is the least time between two readings of the kernel for a [Comparison].
const CompareEvery = 5 * time.Second

// Difference is an element, or another object of the rules, that differs.
type Difference struct {
	Service string `json:"service,omitempty"` // namespace/name; empty: it is of no Service alone
	Port    string `json:"port,omitempty"`    // of the Service
	// Change would repair it, for example "delete element { ... } of map ip nftproxy services".
	Change string `json:"change"`
}
