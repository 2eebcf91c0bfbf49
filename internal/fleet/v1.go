package fleet

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// versionOne is the version of the documents of nftproxy 0.2; those of 0.1 have none, and the same fields.
const versionOne = "nftproxy.dev/v1"

// statusV1 is an [api.Status] of version 1, which was flat.
type statusV1 struct {
	From     string           `json:"from"`
	NoDaemon string           `json:"noDaemon"`
	Healthy  bool             `json:"healthy"`
	Words    words.Vocabulary `json:"words"`
	api.Daemon
	api.Rules
	api.Served
	Problems      []problemV1          `json:"problems"`
	ProblemCounts map[model.Reason]int `json:"problemCounts"`
	Notes         []problemV1          `json:"notes"`
	ServicePorts  []api.ServicePort    `json:"servicePorts"`
}

type problemV1 struct {
	Object  string       `json:"object"`
	Reason  model.Reason `json:"reason"`
	Message string       `json:"message"`
}

// decoder decodes documents of nodes of this version, or of one before: nodes are updated one after the other.
type decoder struct{}

// Decode implements [api.Decoder].
func (decoder) Decode(content []byte, document any) error {
	if of := versionOf(content); of != "" && of != versionOne {
		return api.Decode(content, document)
	}
	status, ok := document.(*api.Status)
	if !ok { // the others have the same fields
		return api.Decode(bytes.Replace(content, []byte(`"`+versionOne+`"`), []byte(`"`+api.CurrentVersion+`"`), 1), document)
	}
	var old statusV1
	if err := api.Decode(content, &old); err != nil {
		return err
	}
	*status = api.Status{
		From: old.From, NoDaemon: old.NoDaemon, Healthy: old.Healthy, Words: old.Words, Daemon: old.Daemon, Rules: old.Rules, Served: old.Served,
		Findings:     api.Findings{Problems: problemsOf(old.Problems), ProblemCounts: old.ProblemCounts, Notes: problemsOf(old.Notes)},
		ServicePorts: old.ServicePorts,
	}
	return nil
}

// versionOf returns the version of a document, which is its first field; empty: it has none.
func versionOf(content []byte) string {
	d := json.NewDecoder(bytes.NewReader(content))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return api.CurrentVersion // [api.Decode] has the error
	}
	if t, _ := d.Token(); t != "apiVersion" {
		return ""
	}
	version, _ := d.Token()
	text, _ := version.(string)
	return text
}

func problemsOf(all []problemV1) (out []api.Problem) {
	for _, p := range all {
		out = append(out, api.Problem{Object: parseObject(p.Object), Reason: p.Reason, Message: p.Message})
	}
	return out
}

func parseObject(text string) model.Object {
	kind, name, _ := strings.Cut(text, " ")
	switch kind {
	case "Service", "Balance":
		namespace, bare, qualified := strings.Cut(name, "/")
		if !qualified {
			namespace, bare = "default", name
		}
		return model.Object{Kind: kind, Namespace: namespace, Name: bare}
	case "Node", "Name", "Endpoint", "Server":
		return model.Object{Kind: kind, Name: name}
	}
	return model.Object{Kind: text}
}
