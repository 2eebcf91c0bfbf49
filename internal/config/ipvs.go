package config

import "github.com/nftproxy/nftproxy/internal/model"

const (
	// notCounted is why schedulers by load cannot be carried out.
	notCounted = "nftables does not count the open connections of endpoints"
	fieldIPVS  = "ipvs.scheduler"
)

// ipvsSchedulers are the schedulers of IPVS that have a counterpart, or why others have
// none. kube-proxy gives all endpoints weight 1, and sets the flag mh-port for mh, but
// not sh-port for sh (pkg/proxy/ipvs/proxier.go in Kubernetes 1.37).
var ipvsSchedulers = map[string]struct {
	scheduler model.Scheduler
	why       string
}{
	"rr":    {model.RoundRobin, ""},
	"wrr":   {model.RoundRobin, ""},
	"sh":    {model.SourceHash, ""},
	"mh":    {model.MaglevPort, ""},
	"dh":    {model.RoundRobin, "all connections to a Service have the same destination"},
	"lc":    {model.RoundRobin, notCounted},
	"wlc":   {model.RoundRobin, notCounted},
	"sed":   {model.RoundRobin, notCounted},
	"nq":    {model.RoundRobin, notCounted},
	"lblc":  {model.RoundRobin, notCounted},
	"lblcr": {model.RoundRobin, notCounted},
	"fo":    {model.RoundRobin, "all endpoints have the same weight"},
	"ovf":   {model.RoundRobin, notCounted},
	"twos":  {model.RoundRobin, notCounted},
}

// useIPVSScheduler takes the scheduler of the mode ipvs over, or says why not. A flag of
// ours takes precedence (3.51).
func (c *Config) useIPVSScheduler(f *Flags) {
	name := c.Kube.IPVS.Scheduler
	if name == "" {
		return
	}
	s, known := ipvsSchedulers[name]
	switch {
	case f.Given("scheduler"):
		c.addRemark("setting has no effect", c.fieldAttributes(fieldIPVS, "because", "--scheduler is given")...)
	case !known:
		c.addRemark("unknown scheduler of the mode ipvs", c.fieldAttributes(fieldIPVS, "ipvs", name, "scheduler", c.Own.Scheduler)...)
	default:
		c.Own.Scheduler = s.scheduler.String()
		args := c.fieldAttributes(fieldIPVS, "ipvs", name, "scheduler", c.Own.Scheduler)
		switch {
		case s.why != "":
			c.addRemark("the scheduler of the mode ipvs has no counterpart", append(args, "because", s.why)...)
		case s.scheduler != model.RoundRobin:
			c.addRemark("the scheduler of the mode ipvs applies", args...)
		}
	}
	c.Kube.IPVS.Scheduler = "" // it is no longer without effect
}
