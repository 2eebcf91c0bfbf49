package servers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/test/program"
)

// balancedConfig has sections as people run them, for the address of HAProxy or of the Balances.
const balancedConfig = `global
    maxconn 1000
defaults
    mode tcp
    timeout connect 3s
    timeout client 30s
    timeout server 30s
    default-server inter 200 rise 1 fall 2

listen redis
    bind ADDRESS:6379
    balance leastconn
    option tcp-check
    tcp-check connect
    tcp-check send AUTH\ secret\r\n
    tcp-check expect string +OK
    tcp-check send PING\r\n
    tcp-check expect string +PONG
    tcp-check send info\ replication\r\n
    tcp-check expect string role:master
    tcp-check send QUIT\r\n
    tcp-check expect string +OK
    server a SERVER0:6379 check
    server b SERVER1:6379 check
    server c SERVER2:6379 check

listen ftp
    bind ADDRESS:21
    bind ADDRESS:30000-30002
    stick-table type ip size 10k expire 30m
    stick on src
    server a SERVER0 check port 21
    server b SERVER1 check port 21
    server c SERVER2 check port 21

frontend api
    bind ADDRESS:6443
    acl admins src 198.51.100.1
    tcp-request connection accept if admins
    tcp-request connection accept if { src 198.51.100.2 }
    tcp-request connection reject
    default_backend masters

backend masters
    server a SERVER0:21 check
    server b SERVER1:21 check

listen galera
    bind ADDRESS:3306
    stick-table type ip size 1
    stick on dst
    server a SERVER0:3306 check
    server b SERVER1:3306 check
    server c SERVER2:3306 check
`

// redis is a server that answers as Redis does in one of these states.
type redis struct {
	name  string
	state atomic.Pointer[string]
}

// silence is how long a client waits that is not expected to get an answer.
const silence = 300 * time.Millisecond

const (
	redisMaster    = "master"
	redisReplica   = "replica"
	redisLoading   = "master that loads its data"
	redisProtected = "master with another password"
	redisOpen      = "master without a password"
)

func (r *redis) become(state string) { r.state.Store(&state) }

// serve answers connections.
func (r *redis) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for lines := bufio.NewScanner(c); lines.Scan(); {
				if _, err := io.WriteString(c, r.answer(lines.Text(), c.RemoteAddr())); err != nil {
					return
				}
			}
		}()
	}
}

func (r *redis) answer(line string, from net.Addr) string {
	state := *r.state.Load()
	switch command, _, _ := strings.Cut(line, " "); {
	case command == "AUTH" && state == redisProtected:
		return "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	case command == "AUTH" && state == redisOpen:
		return "-ERR AUTH called without any password configured for the default user.\r\n"
	case command == "PING" && state == redisLoading:
		return "-LOADING Redis is loading the dataset in memory\r\n"
	case command == "PING":
		return "+PONG\r\n"
	case command == "info" && state == redisReplica:
		return "$45\r\n# Replication\r\nrole:slave\r\nmaster_host:10.0.0.1\r\n"
	case command == "info":
		return "$30\r\n# Replication\r\nrole:master\r\n\r\n"
	case command == "AUTH" || command == "QUIT":
		return "+OK\r\n"
	}
	client := netip.MustParseAddrPort(from.String())
	return fmt.Sprintf("%s %d %s\n", r.name, 6379, client.Addr()) // as servers for echoes
}

// sides are HAProxy and the Balances that are imported from its configuration.
type sides struct {
	*program.Machine
	at map[string]netip.Addr
}

// startSides starts both.
func startSides(m *program.Machine) *sides {
	m.T.Helper()
	s := &sides{m, map[string]netip.Addr{"HAProxy": m.Node.IPv4, "nftproxy": vip[model.IPv4]}}
	for side, at := range s.at {
		replace := []string{"ADDRESS", at.String()}
		for i, p := range m.Pods {
			replace = append(replace, fmt.Sprint("SERVER", i), p.IPv4.String())
		}
		m.Write(side+".cfg", strings.NewReplacer(replace...).Replace(balancedConfig))
	}
	m.Serve(m.Node, "haproxy", "-db", "-f", m.Path("HAProxy.cfg"))
	text := m.Run("import", m.Path("nftproxy.cfg"))
	text, _, _ = strings.Cut(text, "\n4 Balances, ")
	if strings.Contains(text, "# Not used") {
		m.T.Fatal(text)
	}
	m.Write("conf.d/imported.yaml", text+"\n")
	m.Start()
	return s
}

// served waits until each of some connections of a client to a port reaches the expected server, or none
// (""), on both sides.
func (s *sides) served(what string, client *netlab.Host, port uint16, want string) {
	s.T.Helper()
	for side, at := range s.at {
		netlab.Eventually(s.T, program.Patience, func() error {
			for range 12 {
				a, err := client.Ask("tcp", netip.AddrPortFrom(at, port), program.Patience)
				if errors.Is(err, os.ErrDeadlineExceeded) {
					return err
				}
				if a.Name != want {
					return fmt.Errorf("%s: %s: %q answers (%v), want %q", what, side, a.Name, err, want)
				}
			}
			return nil
		})
	}
}

// TestImportBesideHAProxy: 12.95. HAProxy and the Balances that are imported from its configuration do the
// same: of several Redis servers they use the one that takes writes, and none while it loads its data, has
// another password, or none. Control and data of a client of FTP reach one server, an access list refuses the
// same clients, and one server of a cluster has all connections.
func TestImportBesideHAProxy(t *testing.T) {
	m := program.NewMachine(t, binary, 3)
	var servers []*redis
	writers := make(map[*netlab.Host]*netlab.Echo)
	for _, p := range m.Pods {
		r := &redis{name: p.Name}
		r.become(redisReplica)
		l, err := p.Listen("tcp", netip.AddrPortFrom(p.IPv4, 6379).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go r.serve(l)
		servers = append(servers, r)
		for _, port := range []uint16{21, 30000, 30001, 30002, 3306} {
			e, err := p.Echo(port)
			if err != nil {
				t.Fatal(err)
			}
			if port == 3306 {
				writers[p] = e
			}
			t.Cleanup(func() { e.Close() })
		}
	}
	var clients []*netlab.Host
	for i := byte(1); i <= 6; i++ {
		c, err := m.Client.Alias(netip.AddrFrom4([4]byte{198, 51, 100, i}), netip.MustParseAddr(fmt.Sprintf("2001:db8:51::%x", i)))
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	s := startSides(m)

	s.served("no master", m.Client, 6379, "")
	servers[0].become(redisMaster)
	s.served("a master", m.Client, 6379, m.Pods[0].Name)
	servers[0].become(redisReplica)
	servers[1].become(redisMaster)
	s.served("a failover", m.Client, 6379, m.Pods[1].Name)
	for _, state := range []string{redisLoading, redisProtected, redisOpen} {
		servers[1].become(state)
		s.served("a "+state, m.Client, 6379, "")
		servers[1].become(redisMaster)
		s.served("the end of a "+state, m.Client, 6379, m.Pods[1].Name)
	}

	for side, at := range s.at {
		for _, c := range clients {
			control, err := c.Ask("tcp", netip.AddrPortFrom(at, 21), program.Patience)
			if err != nil {
				t.Fatal(err)
			}
			for _, port := range []uint16{30000, 30002, 21} {
				if data, err := c.Ask("tcp", netip.AddrPortFrom(at, port), program.Patience); err != nil || data.Name != control.Name {
					t.Errorf("%s: FTP of %s: control at %s, port %d at %s, %v", side, c.IPv4, control.Name, port, data.Name, err)
				}
			}
		}
		for i, c := range clients {
			wait := program.Patience
			if i >= 2 {
				wait = silence
			}
			a, err := c.Ask("tcp", netip.AddrPortFrom(at, 6443), wait)
			if served := err == nil; served != (i < 2) {
				t.Errorf("%s: the list allows two clients, number %d: %q %v", side, i, a.Name, err)
			}
		}
	}

	for _, c := range clients {
		s.served("one writer", c, 3306, m.Pods[0].Name)
	}
	if err := writers[m.Pods[0]].Close(); err != nil {
		t.Fatal(err)
	}
	s.served("the next writer", clients[1], 3306, m.Pods[1].Name)
	s.served("the next writer", clients[2], 3306, m.Pods[1].Name)
}
