package servers

import (
	"bufio"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/test/program"
)

// haproxyConfig answers requests of HTTP with the addresses of the connection.
const haproxyConfig = `global
    maxconn 100
defaults
    mode http
    timeout connect 30s
    timeout client 30s
    timeout server 30s
frontend web
    bind SERVER4:8080 accept-proxy
    bind [SERVER6]:8080 accept-proxy
    http-request return status 200 content-type text/plain lf-string "haproxy %[src] %[src_port] %[dst] %[dst_port]\n"
`

// nginxConfig does, and a second server answers with them before it reads anything.
const nginxConfig = `load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off;
master_process off;
pid DIRECTORY/nginx.pid;
error_log stderr;
events { worker_connections 100; }
http {
    access_log off;
    client_body_temp_path DIRECTORY/body;
    proxy_temp_path DIRECTORY/proxy;
    fastcgi_temp_path DIRECTORY/fastcgi;
    uwsgi_temp_path DIRECTORY/uwsgi;
    scgi_temp_path DIRECTORY/scgi;
    server {
        listen SERVER4:8080 proxy_protocol;
        listen [SERVER6]:8080 proxy_protocol;
        set_real_ip_from NODE4;
        set_real_ip_from NODE6;
        real_ip_header proxy_protocol;
        location / { return 200 "nginx $remote_addr $proxy_protocol_port $proxy_protocol_server_addr $proxy_protocol_server_port\n"; }
    }
}
stream {
    server {
        listen SERVER4:8081 proxy_protocol;
        listen [SERVER6]:8081 proxy_protocol;
        set_real_ip_from NODE4;
        set_real_ip_from NODE6;
        return "nginx $remote_addr $proxy_protocol_port $proxy_protocol_server_addr $proxy_protocol_server_port\n";
    }
}
`

var vip = map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("203.0.113.10"), model.IPv6: netip.MustParseAddr("2001:db8:100::10")}

// configure writes the configuration of a server on a host.
func configure(m *program.Machine, on *netlab.Host, name, text string) (path string) {
	m.T.Helper()
	m.Write(name, strings.NewReplacer("DIRECTORY", m.Path("."), "SERVER4", on.IPv4.String(), "SERVER6", on.IPv6.String(),
		"NODE4", m.Gateway(on, model.IPv4).String(), "NODE6", m.Gateway(on, model.IPv6).String()).Replace(text))
	return m.Path(name)
}

// ask connects to an address as a client does, and returns which server answers. It is an error if
// that has seen another client or address.
func ask(m *program.Machine, to netip.AddrPort, request string) (server string, err error) {
	c, err := m.Client.DialContext(m.T.Context(), "tcp", to.String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(program.Patience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprint(c, request); err != nil {
		return "", err
	}
	client := netip.MustParseAddrPort(c.LocalAddr().String())
	seen := fmt.Sprintf(" %s %d %s %d", client.Addr(), client.Port(), to.Addr(), to.Port())
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		if name, ok := strings.CutSuffix(lines.Text(), seen); ok {
			return name, nil
		}
		server += lines.Text() + "\n"
	}
	return "", fmt.Errorf("no line with%s: %w in\n%s", seen, lines.Err(), server)
}

// TestProxyProtocol: 4.98. HAProxy and nginx, with HTTP and without, see the client and the address that it
// dialled, in both families, and checks without a header do not make them fail.
func TestProxyProtocol(t *testing.T) {
	m := program.NewMachine(t, binary, 2)
	haproxy, nginx := m.Pods[0], m.Pods[1]
	m.Serve(haproxy, "haproxy", "-db", "-f", configure(m, haproxy, "haproxy.cfg", haproxyConfig))
	m.Serve(nginx, "nginx", "-p", m.Path("."), "-e", "stderr", "-c", configure(m, nginx, "nginx.conf", nginxConfig))
	balance := func(name string, port int, pods ...*netlab.Host) {
		var listen, servers []string
		for _, f := range model.Families {
			listen = append(listen, fmt.Sprintf("%q", netip.AddrPortFrom(vip[f], uint16(port))))
			for _, p := range pods {
				servers = append(servers, fmt.Sprintf("%q", netip.AddrPortFrom(p.Address(f), uint16(port+8000))))
			}
		}
		m.Balance(name, fmt.Sprintf("listen: [%s]\nbackends: [%s]\ncheck: {tcp, interval: 200ms}\nrelay: proxy-v2\n", strings.Join(listen, ", "), strings.Join(servers, ", ")))
	}
	balance("web", 80, haproxy, nginx)
	balance("stream", 81, nginx)
	m.Start()
	for _, f := range model.Families {
		for port, of := range map[uint16]struct {
			request string
			servers []string
		}{
			80: {"GET / HTTP/1.0\r\nHost: web\r\n\r\n", []string{"haproxy", "nginx"}},
			81: {"", []string{"nginx"}},
		} {
			to := netip.AddrPortFrom(vip[f], port)
			netlab.Eventually(t, program.Patience, func() error {
				got := make(map[string]int)
				for range 2 * len(of.servers) {
					name, err := ask(m, to, of.request)
					if err != nil {
						return fmt.Errorf("%s: %w", to, err)
					}
					got[name]++
				}
				for _, name := range of.servers {
					if got[name] != 2 {
						return fmt.Errorf("%s: %v answer, want two of each of %v", to, got, of.servers)
					}
				}
				return nil
			})
		}
	}
}
