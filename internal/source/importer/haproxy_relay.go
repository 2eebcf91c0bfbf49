package importer

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
)

// addSlowStart adds the longest slow start of a server.
func (p *proxy) addSlowStart() {
	var longest time.Duration
	differ := false
	for _, v := range p.servers {
		differ = differ || v.slowStart != p.servers[0].slowStart
		longest = max(longest, v.slowStart)
	}
	switch {
	case longest == 0:
		return
	case setting.SlowStart.Parse(new(setting.Values), longest) != "":
		p.noteChange(nil, "slowstart of servers is left out: slowStart is from 1s to 1h")
		return
	case differ:
		p.noteChange(nil, "servers have different times of slowstart: a Balance has one, here the longest")
	}
	p.SlowStart = &metav1.Duration{Duration: longest}
}

// addRelay relays the connections if a server expects the header of the PROXY protocol, and
// replaces what a relay does not have.
func (p *proxy) addRelay() {
	headers := 0
	for _, v := range p.servers {
		if v.header {
			headers++
		}
	}
	if headers == 0 {
		return
	}
	p.Relay = model.RelayNames[model.ProxyV2Relay-1]
	if headers < len(p.servers) {
		p.refuse(nil, "some servers have send-proxy-v2 and others do not: a Balance with relay: proxy-v2 sends all of them the header")
	}
	if p.Scheduler == model.Maglev.String() || p.Affinity != nil {
		p.noteChange(nil, "with relay, scheduler: source-hash gives a client the same server while the servers stay")
		p.Scheduler, p.Affinity = model.SourceHash.String(), nil
	}
	if p.ClientAddresses != "" {
		p.noteChange(nil, "servers see this machine, and read the address of the client in the header of the PROXY protocol")
		p.ClientAddresses = ""
	}
	if c := p.check; p.Check != nil && c.port == 0 && (c.kind != "" || c.send != "" || c.expect != "") {
		p.noteChange(nil, "checks send no header of the PROXY protocol: give the check a port of the server that expects none")
	}
}
