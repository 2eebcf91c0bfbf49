package soak

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// checkRules compares the rules with those that a new nftproxy makes on an
// empty node. The slots of endpoints and unused lanes may differ; a restart
// removes these lanes, after which nothing differs.
func (s *soak) checkRules() {
	s.T.Helper()
	empty := testbed.NewLab(s.T, 0)
	s.lendServer(empty.Node)
	fresh := s.StartProxyOn(empty.Node)
	s.hasSynced(empty.Node, fresh)
	want := readTables(s.listing(empty.Node))
	s.sameRules("at rest", want, true)
	s.T.Logf("a new nftproxy on another node:\n%+v", s.sampleOf(empty.Node, fresh))

	s.restartProxy(false)
	s.sameRules("after a restart", want, false)
	s.awaitServer()
	s.Run(exec.Command(testbed.NFTProxy.Path, "diff", "--kubeconfig", s.Kubeconfig(testbed.ProxyUser), "--hostname-override", testbed.NodeName, "--cluster-cidr", testbed.ClusterCIDRs))
}

// lendServer makes the API server reachable from another node at its address.
func (s *soak) lendServer(to *netlab.Host) {
	s.T.Helper()
	l, err := to.Listen("tcp", testbed.APIAddress)
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := s.Node.DialContext(s.T.Context(), "tcp", testbed.APIAddress)
			if err != nil {
				near.Close()
				continue
			}
			go relay(near, far)
			go relay(far, near)
		}
	}()
}

func relay(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
}

// listing returns the tables of nftproxy on a host.
func (s *soak) listing(host *netlab.Host) string {
	s.T.Helper()
	var all string
	for _, family := range []string{"ip", "ip6"} {
		var out netlab.LogBuffer
		cmd := exec.Command("nft", "--stateless", "list", "table", family, "nftproxy")
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := host.Run(cmd); err != nil {
			s.T.Fatalf("%v: %s", err, out.String())
		}
		all += out.String()
	}
	return all
}

// sameRules waits until the rules of the node do what is wanted.
func (s *soak) sameRules(when string, want *tables, idle bool) {
	s.T.Helper()
	testbed.Eventually(s.T, func() error {
		got := readTables(s.listing(s.Node))
		if !idle && got.idle != want.idle {
			return fmt.Errorf("%s: %d lanes without Services, want %d", when, got.idle, want.idle)
		}
		if diff := cmp.Diff(want.lines(), got.lines()); diff != "" {
			return fmt.Errorf("%s: the rules differ from those of a new nftproxy (-new, +ours):\n%.5000s", when, diff)
		}
		s.T.Logf("%s: %d chains, sets and maps, and %d elements, as of a new nftproxy; and %d lanes without Services",
			when, len(got.objects), len(got.elements), got.idle)
		return nil
	})
}

// tables is the content of a listing without irrelevant details.
type tables struct {
	objects  map[string][]string // lines of a chain, set or map, without its elements
	elements []string
	idle     int // lanes that no element leads to
}

// lines has one for each object and element, in order.
func (t *tables) lines() []string {
	var lines []string
	for name, object := range t.objects {
		lines = append(lines, name+" "+strings.Join(object, "; "))
	}
	lines = append(lines, t.elements...)
	return slices.Sorted(slices.Values(lines))
}

var (
	laneName = regexp.MustCompile(`^(?:(?:local-)?sticky-)?(?:rr|random|hash)-(\d+)(?:-\d+)?(-outside)?$`)
	binder   = regexp.MustCompile(`^(?:node-|local-)*bind-(?:tcp|udp|sctp)-\d+$`)
	sticky   = regexp.MustCompile(`^(?:local-)?sticky-`)
	// counter is the number of a lane's own counter; a fraction of the
	// connections uses the counter that all lanes of as many slots share.
	counter = regexp.MustCompile(`^(rr-\d+)-\d+`)
	comment = regexp.MustCompile(` comment "[^"]*"`)
)

// ownSlots is the first slot of lanes for clients outside of the cluster that have
// endpoints of their own.
const ownSlots = 1 << 20

// readTables reads an nft listing. Where the class of a frontend leads to a lane, the
// endpoints in the slots of that lane follow it, instead of the elements of the
// maps of endpoints and lanes.
func readTables(text string) *tables {
	t := &tables{objects: map[string][]string{}}
	slots := map[string]string{}   // by frontend and slot
	classes := map[string]string{} // verdicts by class
	binders := map[string]string{} // verdicts by class of affinity
	bound := map[string]bool{}     // the classes that frontends have
	var services [][2]string       // name with frontend, class
	table, object, lanes := "", "", map[string]bool{}
	led := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		fields := strings.Fields(line)
		switch {
		case line == "" || line == "}":
			continue
		case strings.HasPrefix(line, "table "):
			table, object = fields[1], line
			continue
		case strings.HasSuffix(line, " {") && len(fields) == 3:
			object = table + " " + fields[0] + " " + fields[1]
			t.objects[object] = nil
			if fields[0] == "chain" && (laneName.MatchString(fields[1]) || binder.MatchString(fields[1])) {
				lanes[table+" "+fields[1]] = true
			}
			continue
		}
		rest, first := strings.CutPrefix(line, "elements = { ")
		isElement := first || strings.HasSuffix(line, ",") || strings.HasSuffix(line, " }")
		if !isElement || strings.Contains(object, " chain ") {
			t.objects[object] = append(t.objects[object], line)
			continue
		}
		for e := range strings.SplitSeq(strings.TrimSuffix(rest, " }"), ",") {
			if e = strings.TrimSpace(e); e == "" || strings.HasSuffix(object, "affinity") || strings.HasSuffix(object, "affinity-arrivals") {
				continue
			}
			key, value, _ := strings.Cut(e, " : ")
			switch {
			case strings.HasSuffix(object, "map endpoints"):
				slots[table+" "+key] = value
			case strings.HasSuffix(object, "map lanes"):
				classes[table+" "+key] = value
			case strings.HasSuffix(object, "map binders"):
				binders[table+" "+key] = value
			case strings.HasSuffix(object, "affinity-timeouts"):
				bound[table+" "+value] = true
				t.elements = append(t.elements, object+" "+e)
			case strings.HasSuffix(object, "services"):
				services = append(services, [2]string{object + " " + key, table + " " + value})
			default:
				t.elements = append(t.elements, object+" "+e)
			}
		}
	}
	for _, v := range services {
		v[1] = classes[v[1]]
		t.elements = append(t.elements, v[0]+" : "+v[1]+t.behind(v, slots, led))
	}
	for class := range bound {
		family, _, _ := strings.Cut(class, " ")
		led[family+" "+strings.TrimPrefix(binders[class], "goto ")] = true
		t.elements = append(t.elements, class+" : "+binders[class])
	}
	for lane := range lanes {
		if !led[lane] {
			delete(t.objects, strings.Replace(lane, " ", " chain ", 1))
			t.idle++
		}
	}
	t.elements = append(t.elements, fmt.Sprintf("%d slots", len(slots)))
	slices.Sort(t.elements)
	return t
}

// behind returns the endpoints that a verdict leads to, and notes the lanes.
func (t *tables) behind(verdict [2]string, slots map[string]string, led map[string]bool) string {
	lane, leads := strings.CutPrefix(verdict[1], "goto ")
	m := laneName.FindStringSubmatch(lane)
	if !leads || m == nil {
		return ""
	}
	family, _, _ := strings.Cut(verdict[0], " ")
	led[family+" "+lane] = true
	plain := sticky.ReplaceAllString(lane, "")
	led[family+" "+plain] = true
	led[family+" "+counter.ReplaceAllString(plain, "$1-16")] = true
	frontend := comment.ReplaceAllString(strings.SplitN(verdict[0], " ", 4)[3], "")
	count, _ := strconv.Atoi(m[1])
	first := 0
	if m[2] != "" {
		first = ownSlots
	}
	var endpoints []string
	for i := first; i < first+count; i++ {
		endpoints = append(endpoints, slots[fmt.Sprintf("%s %s . %d", family, frontend, i)])
	}
	slices.Sort(endpoints)
	return " " + strings.Join(endpoints, ", ")
}
