package fastpath

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Names of the devices of the node.
const nodeToClient, nodeToServer = "client", "server"

// testPorts are the ports of connections without masquerading and with it.
var testPorts = []uint16{1000, masqueradedPort}

const masqueradedPort = 1001

// Addresses that are reserved for documentation: the namespaces have no way to others.
var (
	clientNets = map[model.Family]netip.Prefix{model.IPv4: netip.MustParsePrefix("198.51.100.0/24"), model.IPv6: netip.MustParsePrefix("2001:db8:1::/64")}
	serverNets = map[model.Family]netip.Prefix{model.IPv4: netip.MustParsePrefix("203.0.113.0/24"), model.IPv6: netip.MustParsePrefix("2001:db8:2::/64")}
	frontends  = map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("192.0.2.1"), model.IPv6: netip.MustParseAddr("2001:db8:3::1")}
)

func host(in netip.Prefix, number int) netip.Addr {
	b := in.Addr().AsSlice()
	b[len(b)-1] = byte(number)
	a, _ := netip.AddrFromSlice(b)
	return a
}

// room is a client, a node with rules and a flow table, and a server with two addresses.
type room struct {
	families             []model.Family
	client, node, server *space
	rules                *rules
	table                *table
	listening            []io.Closer
	stopped              atomic.Bool

	mu       sync.Mutex
	accepted []net.Conn
}

func newRoom(families []model.Family) (r *room, err error) {
	r = &room{families: families}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	for _, s := range []**space{&r.client, &r.node, &r.server} {
		if *s, err = newSpace(); err != nil {
			return r, err
		}
	}
	// What most often is missing comes first.
	if r.table, err = create(options{early: true, netns: r.node.Handle()}); err != nil {
		return r, noFlowTables(err)
	}
	if r.rules, err = newRules(r.node.Handle()); err != nil {
		return r, err
	}
	if err := errors.Join(r.forward(), r.connect(nodeToClient, r.client, clientNets, 2), r.addDevice(), r.translate(0), r.take()); err != nil {
		return r, err
	}
	if err := r.table.hook(nodeToClient, nodeToServer); err != nil {
		return r, fmt.Errorf("add devices to the flow table: %w", err)
	}
	return r, r.listen()
}

// noFlowTables explains why a table with a flow table cannot be made.
func noFlowTables(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("the kernel has no flow tables (CONFIG_NF_FLOW_TABLE, CONFIG_NF_FLOW_TABLE_INET, CONFIG_NFT_FLOW_OFFLOAD, CONFIG_NFT_FIB_INET): %w", err)
	}
	return err
}

// forward makes the node a router.
func (r *room) forward() error {
	return r.node.Do(func() error {
		for _, f := range r.families {
			path := "/proc/sys/net/ipv4/ip_forward"
			if f == model.IPv6 {
				path = "/proc/sys/net/ipv6/conf/all/forwarding"
			}
			if err := os.WriteFile(path, []byte("1"), 0); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *room) addDevice() error { return r.connect(nodeToServer, r.server, serverNets, 2, 3) }

// connect connects the node with another namespace, which gets addresses with these numbers
// and a route to all others.
func (r *room) connect(device string, to *space, nets map[model.Family]netip.Prefix, numbers ...int) error {
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: device, PeerNamespace: netlink.NsFd(to.Handle())}
	if err := r.node.links.LinkAdd(pair); err != nil {
		return fmt.Errorf("add a pair of network devices: %w", err)
	}
	if err := r.node.configure(device, r.families, nets, 1); err != nil {
		return err
	}
	if err := to.configure(device, r.families, nets, numbers...); err != nil {
		return err
	}
	for _, f := range r.families {
		if err := to.links.RouteAdd(&netlink.Route{Gw: host(nets[f], 1).AsSlice()}); err != nil {
			return fmt.Errorf("add a route: %w", err)
		}
	}
	return nil
}

func (r *room) removeDevice() error {
	l, err := r.node.links.LinkByName(nodeToServer)
	if err != nil {
		return err
	}
	return r.node.links.LinkDel(l)
}

// take makes connections take the fast path.
func (r *room) take() error {
	var all []model.Frontend
	for _, f := range r.families {
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			for _, port := range testPorts {
				all = append(all, model.Frontend{Address: frontends[f], Protocol: p, Port: port})
			}
		}
	}
	return r.table.change(nil, all)
}

func (r *room) endpoint(f model.Family, number int) netip.Addr { return host(serverNets[f], 2+number) }

// translate sends new connections to an endpoint.
func (r *room) translate(endpoint int) error {
	to := make(map[model.Family]netip.Addr)
	for _, f := range r.families {
		to[f] = r.endpoint(f, endpoint)
	}
	return r.rules.translate(to)
}

// forgetUDP deletes the entries of datagrams from connection tracking.
func (r *room) forgetUDP() error {
	for _, f := range r.families {
		family := netlink.InetFamily(unix.AF_INET)
		if f == model.IPv6 {
			family = unix.AF_INET6
		}
		udp := &netlink.ConntrackFilter{}
		if err := udp.AddProtocol(unix.IPPROTO_UDP); err != nil {
			return err
		}
		if _, err := r.node.links.ConntrackDeleteFilters(netlink.ConntrackTable, family, udp); err != nil {
			return fmt.Errorf("delete entries of connection tracking: %w", err)
		}
	}
	return nil
}

// listen answers each question with the address that it was sent to.
func (r *room) listen() error {
	return r.server.Do(func() error {
		for _, f := range r.families {
			for endpoint := range 2 {
				for _, port := range testPorts {
					if err := r.answer(netip.AddrPortFrom(r.endpoint(f, endpoint), port)); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

func (r *room) answer(at netip.AddrPort) error {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	r.listening = append(r.listening, l)
	line := []byte(at.Addr().String() + "\n")
	go r.accept(l, line)
	p, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	r.listening = append(r.listening, p)
	go func() {
		for b := make([]byte, 16); ; {
			_, from, err := p.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = p.WriteToUDPAddrPort(line, from)
		}
	}()
	return nil
}

// accept answers each line of a connection with a line, until the listener is closed.
func (r *room) accept(l net.Listener, line []byte) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.accepted = append(r.accepted, c)
		r.mu.Unlock()
		go func() {
			for lines := bufio.NewScanner(c); lines.Scan(); {
				if _, err := c.Write(line); err != nil {
					return
				}
			}
		}()
	}
}

// abort ends the questions soon.
func (r *room) abort()        { r.stopped.Store(true) }
func (r *room) aborted() bool { return r.stopped.Load() }

func (r *room) close() (err error) {
	for _, l := range r.listening {
		err = errors.Join(err, l.Close())
	}
	r.mu.Lock()
	for _, c := range r.accepted { // the end of the client may have got lost
		reset(c)
	}
	r.mu.Unlock()
	if r.table != nil {
		err = errors.Join(err, r.table.close())
	}
	if r.rules != nil {
		err = errors.Join(err, r.rules.conn.CloseLasting())
	}
	if r.node != nil { // what is left here would keep the kernel busy at the end of the namespace
		err = errors.Join(err, r.node.links.ConntrackTableFlush(netlink.ConntrackTable))
	}
	for _, s := range []*space{r.client, r.node, r.server} {
		if s != nil {
			err = errors.Join(err, s.close())
		}
	}
	return err
}

// reset closes a connection without waiting for the other side, so that its socket does not
// keep its namespace.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// testFlow is a connection through the node.
type testFlow struct {
	network string
	family  model.Family
	port    uint16
	conn    net.Conn
	answers *bufio.Reader
}

func (f *testFlow) String() string {
	text := f.network + " " + f.family.String()
	if f.port == masqueradedPort {
		text += ", masqueraded"
	}
	return text
}

// open opens a connection. Addresses of IPv6 answer only when the kernel has noticed that the
// device is on, which it does in the background.
func (r *room) open(network string, family model.Family, port uint16) (*testFlow, error) {
	f := &testFlow{network: network, family: family, port: port}
	to := net.JoinHostPort(frontends[family].String(), strconv.Itoa(int(port)))
	dial := func() (err error) {
		d := net.Dialer{Timeout: testTime}
		f.conn, err = d.Dial(network, to)
		return err
	}
	err := r.client.Do(dial)
	for began := time.Now(); err != nil && time.Since(began) < settleTime && !r.aborted(); {
		err = r.client.Do(dial)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f, err)
	}
	f.answers = bufio.NewReader(f.conn)
	return f, nil
}

func (f *testFlow) ask() (string, error) {
	if err := f.conn.SetDeadline(time.Now().Add(testTime)); err != nil {
		return "", err
	}
	if _, err := f.conn.Write([]byte("?\n")); err != nil {
		return "", err
	}
	line, err := f.answers.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("no answer: %w", err)
	}
	return line[:len(line)-1], nil
}
