package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// nftlb is the balancer of that name, changed by its API. It has no health checks.
type nftlb struct{}

func (nftlb) name() string       { return "nftlb" }
func (nftlb) program() string    { return "nftlb" }
func (nftlb) version() string    { return version(6, "nftlb", "-h") }
func (nftlb) measures() []string { return measures }

// nftlbKey authenticates a client of the API.
const nftlbKey = "balancers"

type nftlbFarm struct {
	Name      string         `json:"name"`
	Address   string         `json:"virtual-addr,omitempty"`
	Ports     string         `json:"virtual-ports,omitempty"`
	Mode      string         `json:"mode,omitempty"`
	Protocol  string         `json:"protocol,omitempty"`
	Scheduler string         `json:"scheduler,omitempty"`
	State     string         `json:"state,omitempty"`
	Backends  []nftlbBackend `json:"backends"`
}

type nftlbBackend struct {
	Name    string `json:"name"`
	Address string `json:"ip-addr"`
	Port    string `json:"port"`
	State   string `json:"state"`
}

func (n nftlb) start(r *room, s setting) (running, error) {
	var farms []nftlbFarm
	for i, own := range s.services {
		f := nftlbFarm{Name: n.farm(i), Address: own.to.Addr().String(), Ports: strconv.Itoa(int(own.to.Port())),
			Mode: "snat", Protocol: "tcp", Scheduler: "rr", State: "up"}
		for j := range own.endpoints {
			f.Backends = append(f.Backends, n.backend(s, i, j))
		}
		farms = append(farms, f)
	}
	text, err := json.Marshal(map[string]any{"farms": farms})
	if err != nil {
		return nil, err
	}
	if err := r.write("nftlb.json", string(text)); err != nil {
		return nil, err
	}
	c, err := r.daemon(r.Node, "nftlb", "-k", nftlbKey, "-H", "127.0.0.1", "-L", "2", "-c", r.file("nftlb.json"))
	if err != nil {
		return nil, err
	}
	return process{[]*child{c}, []way{{"API", func(s setting, i, j int, _ netip.AddrPort) error {
		return n.post(r, nftlbFarm{Name: n.farm(i), Backends: []nftlbBackend{n.backend(s, i, j)}})
	}}}}, nil
}

func (nftlb) farm(i int) string { return fmt.Sprintf("service%d", i) }

func (nftlb) backend(s setting, i, j int) nftlbBackend {
	e := s.services[i].endpoints[j]
	return nftlbBackend{fmt.Sprintf("b%d", j), e.Addr().String(), strconv.Itoa(int(e.Port())), "up"}
}

// post changes a farm.
func (nftlb) post(r *room, f nftlbFarm) error {
	text, err := json.Marshal(map[string]any{"farms": []nftlbFarm{f}})
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPost, "http://127.0.0.1:5555/farms", strings.NewReader(string(text)))
	if err != nil {
		return err
	}
	request.Header.Set("Key", nftlbKey)
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return r.Node.DialContext(ctx, network, address)
		}}}
	r.acted = time.Now()
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if answer, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		return fmt.Errorf("nftlb: %s: %s", response.Status, answer)
	}
	return nil
}
