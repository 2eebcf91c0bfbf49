// Package api has the documents that a daemon answers with on its metrics server, and their
// client. Commands print the same documents with "-o json". docs/api.md says which fields
// there are, and what a version promises. The names of the JSON fields are stable; what is
// not known is absent.
package api

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/nftproxy/nftproxy/internal/words"
)

// CurrentVersion is the version of all documents. Within a version, fields are added, and none
// is removed or changes its meaning.
const CurrentVersion = "nftproxy.dev/v2"

// Paths of the documents on the metrics server.
const (
	StatusPath   = "/status"   // [Status]
	DescribePath = "/describe" // [Description] of the Service in the parameter "service"
	LivePath     = "/live"     // [Sample]
	DrainPath    = "/drain"    // [Drains]
	BasisPath    = "/basis"    // [Basis]
	ObservePath  = "/observe"  // [Observed]
	ComparePath  = "/compare"  // [Comparison]
	RulesPath    = "/rules"    // the rules as nft lists them
)

// Version is the field of a document that has its version. It is always written as
// [CurrentVersion], and other versions are not read. Daemons before the first version have
// none.
type Version struct{}

// MarshalJSON implements [json.Marshaler].
func (Version) MarshalJSON() ([]byte, error) { return json.Marshal(CurrentVersion) }

// UnmarshalJSON implements [json.Unmarshaler].
func (Version) UnmarshalJSON(b []byte) error {
	var version string
	if err := json.Unmarshal(b, &version); err != nil {
		return err
	}
	if version != CurrentVersion {
		return fmt.Errorf("its apiVersion is %q, and this nftproxy reads %s: use the version of the running one", version, CurrentVersion)
	}
	return nil
}

// View is the answer of a page with a document that only its feature knows.
type View struct {
	APIVersion Version   `json:"apiVersion"`
	Time       time.Time `json:"time"`
	Node       string    `json:"node,omitempty"`
	Document   any       `json:"document"`
}

// Refusal is the answer, with the status 404, to a request for something that does not exist.
type Refusal struct {
	Error string `json:"error"`
}

// UnknownError means that no Service, or more than one, has a name.
type UnknownError struct {
	Name    string
	Hint    string // begins with ": "
	Message string // in place of both
	Words   words.Vocabulary
}

func (e *UnknownError) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return e.Words.Sprintf("no Service is named %q%s", e.Name, e.Hint)
}
