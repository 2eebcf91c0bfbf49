package agent

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/render"
)

// Record identifies the rules of a process that has ended, for the next one: by themselves,
// and by the objects that they follow from. The objects are compared in a fraction of the
// time, but say the same only to the same program.
type Record struct {
	apply.Record
	Key     []byte // secret
	Objects []byte // a hash of them, and of the rest of the record; empty: unknown
	Sizes   []render.SetSize
}

// keyLength is the length of a key in bytes.
const keyLength = 32

// Record returns what identifies the rules in the kernel for the next process, except for its
// identity and generation; nil: that may hold others, or more. Call it after [Agent.Run].
func (a *Agent) Record() *Record {
	if a.rules == nil || a.log.failed || len(a.pending.routes) > 0 || a.own != nil || len(a.quarantine.services) > 0 || a.drift.isPending() || !a.Applier.Known() {
		return nil
	}
	if err := a.dropIdle(); err != nil {
		return nil
	}
	held := a.Applier.Record(render.Render(a.quarantine.wantedRouting()))
	if held == nil {
		return nil
	}
	r := &Record{Record: *held, Key: make([]byte, keyLength), Sizes: a.rules.Sizes()}
	rand.Read(r.Key)
	var err error
	if r.Objects, err = a.sealRecord(r); err != nil {
		r.Objects = nil
	}
	return r
}

// sealRecord returns a hash of all objects and settings, and of what the rules have beside these.
func (a *Agent) sealRecord(r *Record) ([]byte, error) {
	objects, err := a.router.Digest(r.Key)
	if err != nil {
		return nil, err
	}
	rest, err := json.Marshal([]any{r.Slots, r.Sizes})
	if err != nil {
		return nil, err
	}
	h := hmac.New(sha256.New, r.Key)
	h.Write(objects)
	h.Write(rest)
	return h.Sum(nil), nil
}

// resumesObjects reports whether the kernel is known to hold all rules already, because the
// record of the process before this one has the same objects.
func (a *Agent) resumesObjects(s *Sync) bool {
	r := a.Resume
	if r == nil || len(r.Objects) == 0 || a.rules != nil || a.own != nil || len(a.quarantine.services) > 0 {
		return false
	}
	sum, err := a.sealRecord(r)
	if err != nil || !hmac.Equal(sum, r.Objects) || !a.Applier.Adopt(&r.Record) {
		return false
	}
	s.Sizes, s.NewSizes = r.Sizes, true
	return true
}

// completeState makes the state of rules that the kernel holds, which only later changes need.
func (a *Agent) completeState(s *Sync) {
	if s.Err != nil || a.rules != nil {
		return
	}
	rules, parts := render.Load(a.router.Base(), s.Routes)
	if err := recoverPanic(func() error {
		for range parts {
			a.reportAlive()
		}
		return nil
	}); err != nil {
		a.Log.Error("the next change compares all rules", "error", err)
		a.Applier.Forget()
	}
	a.rules = rules
}
