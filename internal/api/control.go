package api

import "time"

// ControlPath is where the control socket takes changes.
const ControlPath = "/control"

// Control is a request to a control socket.
type Control struct {
	APIVersion RequestVersion `json:"apiVersion"`        // absent: this one; nftproxy.dev/v1 has the same fields
	Action     string         `json:"action"`            // set, add, remove, disable, enable, undo or list
	Balance    string         `json:"balance,omitempty"` // name, or namespace/name; empty: all, to list or undo
	Server     string         `json:"server,omitempty"`  // address, or address with port; empty: all, to undo
	Weight     *int           `json:"weight,omitempty"`
	Force      bool           `json:"force,omitempty"` // also the last server that takes connections
}

// RequestVersion is the [Version] of a request. The one before, whose requests are the same, is read as well.
type RequestVersion struct{ Version }

// UnmarshalJSON implements [json.Unmarshaler].
func (v *RequestVersion) UnmarshalJSON(b []byte) error {
	if string(b) == `"nftproxy.dev/v1"` {
		return nil
	}
	return v.Version.UnmarshalJSON(b)
}

// The actions of a [Control].
const (
	ControlSet     = "set"     // the weight of a server
	ControlAdd     = "add"     // a server, if there is none
	ControlRemove  = "remove"  // a server, if there is one
	ControlDisable = "disable" // keeps new connections away from a server
	ControlEnable  = "enable"  // ends that
	ControlUndo    = "undo"    // ends changes
	ControlList    = "list"
)

// Controlled is the answer of a control socket.
type Controlled struct {
	APIVersion Version `json:"apiVersion"`
	// Error is why nothing was changed; the other fields are absent then.
	Error   string `json:"error,omitempty"`
	Changed bool   `json:"changed"`
	Balance string `json:"balance,omitempty"` // namespace/name
	// Steps are what the action has changed, one for each server.
	Steps []ControlStep `json:"steps,omitempty"`
	// File is the file that was written, with --write.
	File string `json:"file,omitempty"`
	// Sources are the absolute paths that the daemon reads.
	Sources []string `json:"sources,omitempty"`
	// Changes are in force now: the ones of the Balance, or all.
	Changes []RuntimeChange `json:"changes"`
}

// ControlStep is a change of one server: from "weight 1" to "weight 3", for example.
type ControlStep struct {
	Server string `json:"server"`
	Old    string `json:"old"`
	New    string `json:"new"`
}

// RuntimeChange is a change of a server of a Balance that the file of the Balance does not have.
type RuntimeChange struct {
	Balance string `json:"balance"` // namespace/name
	Server  string `json:"server"`
	// Weight is the weight now; absent: the server is removed.
	Weight *int `json:"weight,omitempty"`
	// FileWeight is the weight in the file when the change was made; absent: the server was
	// not in the file.
	FileWeight *int      `json:"fileWeight,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	By         string    `json:"by,omitempty"` // user and process
}
