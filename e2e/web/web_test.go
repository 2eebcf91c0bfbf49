// Package web looks at the page of a running daemon with a real browser.
package web

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const (
	patience = time.Minute
	origin   = "http://127.0.0.1:10249"
	page     = origin + "/web/"
	// browser is the program itself: the command in /usr/bin is a script, and its end
	// would leave the browser behind.
	browser = "/usr/lib/chromium/chromium-headless-shell"
)

// TestPage opens the page in a browser on the node of a daemon with real connections
// (11.19): numbers appear and change, filter, order and details work, nothing is
// loaded from elsewhere, and nothing is wrong in the console. SCREENSHOT names a directory
// to write pictures to.
func TestPage(t *testing.T) {
	n := newNode(t)
	n.load(t)
	b := open(t, n.daemon.Process.Pid)
	b.numbersChange(t)
	b.filters(t)
	b.showsDetail(t)
	b.showsConnections(t, n)
	n.change(t)
	b.waitFor(t, "the change", `[...document.querySelectorAll('#changes tbody tr')].some(r => r.textContent.includes('shop/search'))`)
	if directory := os.Getenv("SCREENSHOT"); directory != "" {
		b.picture(t, filepath.Join(directory, "web.png"))
		b.pictureOfConnections(t, n, filepath.Join(directory, "web-connections.png"))
	}
	b.showsStart(t, n)
	b.isNarrow(t)
	b.isDark(t)
	b.check(t)
	b.enforcesPolicy(t)
	b.noticesEnd(t, n)
}

// numbersChange waits for the rate of a Service, and for its counter to grow.
func (b *tab) numbersChange(t *testing.T) {
	t.Helper()
	const row = `[...document.querySelectorAll('#list tbody tr')].find(r => r.cells[0].textContent === 'shop/web')`
	b.waitFor(t, "a rate", `parseFloat((`+row+`)?.cells[1].textContent) > 1`)
	first := b.text(t, `(`+row+`).cells[3].textContent`)
	b.waitFor(t, "further connections", fmt.Sprintf(`(%s).cells[3].textContent !== %q`, row, first))
	b.waitFor(t, "the total rate", `parseFloat(document.querySelector('#rate').textContent) > 1`)
	b.waitFor(t, "a graph", `document.querySelector('#rateGraph polyline').getAttribute('points').split(' ').length >= 2`)
	if got := b.text(t, `document.querySelector('#health').textContent + ' ' + document.querySelector('#node').textContent`); got != "healthy on node-1" {
		t.Errorf("heading %q", got)
	}
}

func (b *tab) filters(t *testing.T) {
	t.Helper()
	b.do(t, chromedp.SendKeys("#filter", "CART"))
	b.waitFor(t, "one Service", `document.querySelectorAll('#list tbody tr').length === 1 && document.querySelector('#list tbody a').textContent === 'shop/cart'`)
	b.do(t, chromedp.SendKeys("#filter", "\b\b\b\b"))
	b.waitFor(t, "all Services", `document.querySelectorAll('#list tbody tr').length === `+strconv.Itoa(len(demands)))
	b.do(t, chromedp.Click(`[data-sort=name]`))
	const names = `[...document.querySelectorAll('#list tbody a')].map(a => a.textContent)`
	b.waitFor(t, "order by name", names+`.join() === `+names+`.sort().join() && document.querySelector('th[aria-sort=ascending]').textContent === 'Service'`)
	b.do(t, chromedp.Click(`[data-sort=rate]`))
	b.waitFor(t, "order by rate", names+`[0] === 'shop/web'`)
}

func (b *tab) showsDetail(t *testing.T) {
	t.Helper()
	b.do(t, chromedp.Click(`//a[text()='shop/web']`))
	b.waitFor(t, "frontends", `document.querySelector('#detailPorts tbody')?.rows[0].cells[0].textContent === '10.96.0.10:80'`)
	b.waitFor(t, "the rate of a frontend", `parseFloat(document.querySelector('#detailPorts tbody').rows[0].cells[2].textContent) > 1`)
	const endpoints = `[...document.querySelectorAll('#detailPorts tbody')[1].rows]`
	b.waitFor(t, "the rates of all endpoints", endpoints+`.length === 4 && `+endpoints+`.every(r => parseFloat(r.cells[2].textContent) > 1)`)
	if got := b.text(t, endpoints+`[1].textContent`); !strings.HasPrefix(got, "10.128.0.3:8080this node") {
		t.Errorf("second endpoint %q", got)
	}
	b.do(t, chromedp.Click(`#detail a`))
	b.waitFor(t, "the detail closes", `document.querySelector('#detail').hidden`)
}

// showsStart waits for an endpoint that starts slowly in the totals, in the list, and beside the others in the
// detail.
func (b *tab) showsStart(t *testing.T, n *node) {
	t.Helper()
	n.start(t)
	b.waitFor(t, "an endpoint that starts slowly", `document.querySelector('#starting').textContent === '1 starts slowly' && `+
		`[...document.querySelectorAll('#list tbody tr')].some(r => r.cells[0].textContent === 'shop/search' && r.cells[4].textContent === '3 (1 slow)')`)
	b.do(t, chromedp.Click(`//a[text()='shop/search']`))
	const weights = `[...document.querySelectorAll('#detailPorts tbody')[1]?.rows ?? []].map(r => r.cells[4]?.textContent)`
	b.waitFor(t, "its weight", weights+`.length === 3 && `+weights+`.filter(w => w === 'all').length === 2 && `+weights+`.some(w => /^10 %, all in (60 min|1 h)$/.test(w))`)
	b.do(t, chromedp.Click(`#detail a`))
}

// Rows of the lists of observed connections.
const (
	events = `[...document.querySelectorAll('#events tbody tr')]`
	sums   = `[...document.querySelectorAll('#sums tbody tr')]`
)

// showsConnections has a client refused, and looks for it in both lists, and for those that are
// served; filters select.
func (b *tab) showsConnections(t *testing.T, n *node) {
	t.Helper()
	n.Node.TestScript(t, `sysctl -qw net.netfilter.nf_conntrack_acct=1; nft -f - <<END
table inet refusing {
	chain prerouting {
		type filter hook prerouting priority -150
		ip daddr 10.96.0.10 tcp dport 82 log prefix "denied" group 28272 drop
	}
}
END`)
	n.fail(t)
	client := n.Client.IPv4.String()
	b.set(t, "outcome", "refused")
	b.waitFor(t, "both events", events+`.length >= 2 && `+events+`.every(r => r.cells[1].textContent.startsWith('`+client+`:')) && `+
		events+`.some(r => r.cells[6].textContent === 'unknown-port' && r.cells[5].textContent === 'rejected' && r.cells[3].textContent === 'shop/web')`)
	b.waitFor(t, "sums", sums+`.length >= 2 && `+sums+`.every(r => r.cells[0].textContent === '`+client+`')`)
	b.set(t, "reason", "denied")
	b.waitFor(t, "one reason, with advice", events+`.length >= 1 && `+events+`.every(r => r.cells[6].textContent === 'denied') && document.querySelector('#advice').textContent.includes('denied-sources')`)
	b.set(t, "client", "198.51.100.0/24")
	b.waitFor(t, "no event of other clients", events+`.length === 0 && `+sums+`.length === 0 && !document.querySelector('#observed').hidden`)
	b.set(t, "client", "")
	b.set(t, "reason", "")
	b.set(t, "outcome", "failed")
	b.waitFor(t, "a connection that the endpoint refuses", events+`.some(r => r.cells[3].textContent === 'shop/reviews:http' && r.cells[4].textContent.endsWith(':8081') && r.cells[6].textContent === 'endpoint-refused') && `+
		events+`.every(r => r.cells[5].textContent !== 'served')`)
	b.set(t, "outcome", "served")
	b.set(t, "of", "shop/c*")
	b.waitFor(t, "connections with their endpoints, times and bytes", events+`.length >= 2 && `+events+`.every(r => /^shop.c(art|heckout):http$/.test(r.cells[3].textContent) && `+
		`r.cells[4].textContent.endsWith(':8080') && r.cells[7].textContent.endsWith('s')) && `+events+`.some(r => /^[1-9].*, [1-9]/.test(r.cells[8].textContent))`)
	b.set(t, "of", "")
	b.set(t, "outcome", "")
	b.waitFor(t, "all events again", events+`.length >= 40`)
}

// set gives a filter a value.
func (b *tab) set(t *testing.T, id, value string) {
	t.Helper()
	b.evaluate(t, fmt.Sprintf(`{ const input = document.getElementById(%q); input.value = %q; input.dispatchEvent(new Event('input')); }`, id, value))
}

// isNarrow: on a phone nothing is wider than the screen, except what scrolls by itself.
func (b *tab) isNarrow(t *testing.T) {
	t.Helper()
	b.resize(t, 400, 800, true)
	b.waitFor(t, "400 pixels", `innerWidth === 400 && document.documentElement.scrollWidth <= 400`)
}

// isDark compares the colours of both schemes.
func (b *tab) isDark(t *testing.T) {
	t.Helper()
	const brightness = `getComputedStyle(document.body).%s.match(/\d+/g).slice(0, 3).reduce((a, c) => a + Number(c), 0)`
	for _, c := range []struct{ scheme, condition string }{
		{"light", fmt.Sprintf(brightness, "backgroundColor") + " > 600 && " + fmt.Sprintf(brightness, "color") + " < 150"},
		{"dark", fmt.Sprintf(brightness, "backgroundColor") + " < 150 && " + fmt.Sprintf(brightness, "color") + " > 600"},
	} {
		if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: c.scheme}},
		}); err != nil {
			t.Fatal(err)
		}
		b.waitFor(t, c.scheme, c.condition)
	}
}

// enforcesPolicy: a script that someone puts into the page does not run, and nothing
// can be sent to another server.
func (b *tab) enforcesPolicy(t *testing.T) {
	t.Helper()
	b.evaluate(t, `
		window.violations = [];
		document.addEventListener('securitypolicyviolation', (e) => violations.push(e.effectiveDirective));
		const image = document.createElement('img');
		try { image.setAttribute('onerror', 'window.broken = true'); } catch { window.handler = true; }
		image.src = 'http://127.0.0.2/';
		document.body.append(image);
		fetch('http://127.0.0.2/').catch(() => window.refused = true);
		try { document.body.innerHTML = '<b>'; } catch { window.typed = true; }`)
	b.waitFor(t, "violations", `window.refused && window.typed && window.handler && ['img-src', 'connect-src'].every(d => violations.includes(d))`)
	if got := b.text(t, `String(window.broken)`); got != "undefined" {
		t.Error("an inline handler ran")
	}
}

// noticesEnd: the page says that the daemon is gone.
func (b *tab) noticesEnd(t *testing.T, n *node) {
	t.Helper()
	n.end()
	b.waitFor(t, "no answer", `document.querySelector('#health').textContent === 'no answer'`)
}

// picture writes a screenshot when there is something to see.
func (b *tab) picture(t *testing.T, file string) {
	t.Helper()
	b.resize(t, 1100, 1200, false)
	b.waitFor(t, "a minute of rates", `document.querySelector('#rateGraph polyline').getAttribute('points').split(' ').length >= 45`)
	b.do(t, chromedp.Click(`//a[text()='shop/web']`))
	b.waitFor(t, "the rate of a frontend", `parseFloat(document.querySelector('#detailPorts tbody')?.rows[0].cells[2].textContent) > 1`)
	b.capture(t, file)
	b.do(t, chromedp.Click(`#detail a`))
}

// pictureOfConnections writes a picture of observed connections, some of which fail.
func (b *tab) pictureOfConnections(t *testing.T, n *node, file string) {
	t.Helper()
	b.resize(t, 1300, 900, false)
	defer n.failing(t)()
	b.set(t, "of", "shop/*")
	b.waitFor(t, "failures among others", events+`.slice(0, 25).filter(r => r.cells[5].className === 'bad').length >= 2 && `+events+`.length >= 25`)
	b.evaluate(t, `document.querySelector('#observed').scrollIntoView()`)
	b.capture(t, file)
	b.set(t, "of", "")
}

// capture writes what the screen shows.
func (b *tab) capture(t *testing.T, file string) {
	t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, png, 0o644); err != nil {
		t.Fatal(err)
	}
}

// tab is the page in a browser, and what was wrong with it.
type tab struct {
	ctx context.Context

	mu     sync.Mutex
	wrong  []string
	loaded int
}

// open starts a browser in the network namespace of a process. It ends with the test.
func open(t *testing.T, pid int) *tab {
	t.Helper()
	daemon := fmt.Sprintf("/proc/%d/ns/net", pid)
	namespace, err := os.Readlink(daemon)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { awaitEnd(t, namespace, daemon) })
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser), chromedp.WindowSize(1100, 900),
		chromedp.ModifyCmdFunc(func(cmd *exec.Cmd) {
			cmd.Args = append([]string{"nsenter", "--target", strconv.Itoa(pid), "--net", browser}, cmd.Args[1:]...)
			cmd.Path = "/usr/bin/nsenter"
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		}))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel) // waits for the end of the browser
	b := &tab{}
	b.ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Listen(b.ctx, b.observe); err != nil { // starts the browser
		t.Fatal(err)
	}
	_, networkErr := chromedp.Call(b.ctx, network.Enable, network.EnableParams{})
	_, logErr := chromedp.Call(b.ctx, log.Enable, cdp.Empty{})
	_, runtimeErr := chromedp.Call(b.ctx, runtime.Enable, cdp.Empty{})
	if err := errors.Join(networkErr, logErr, runtimeErr); err != nil {
		t.Fatal(err)
	}
	b.do(t, chromedp.Navigate(page))
	return b
}

// awaitEnd waits for the end of all processes of the browser: until no other process
// than the daemon is in its network namespace.
func awaitEnd(t *testing.T, namespace, daemon string) {
	t.Helper()
	netlab.Eventually(t, patience, func() error {
		processes, err := filepath.Glob("/proc/[0-9]*/ns/net")
		for _, p := range processes {
			if n, err := os.Readlink(p); err == nil && n == namespace && p != daemon {
				return fmt.Errorf("%s: the browser has not ended", p)
			}
		}
		return err
	})
}

// observe collects errors, and requests to other servers.
func (b *tab) observe(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	note := func(format string, args ...any) { b.wrong = append(b.wrong, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		note("exception: %v", e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		note("console: %s %v", e.Type, e.Args)
	case *log.EventEntryAdded:
		note("log: %s %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	case *network.EventRequestWillBeSent:
		b.loaded++
		if !strings.HasPrefix(e.Request.URL, origin+"/") && !strings.HasPrefix(e.Request.URL, "data:") {
			note("request to %s", e.Request.URL)
		}
	case *network.EventResponseReceived:
		if e.Response.Status != 200 {
			note("%s: status %d", e.Response.URL, e.Response.Status)
		}
	}
}

// check fails if anything was wrong.
func (b *tab) check(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.wrong {
		t.Error(w)
	}
	if b.loaded < 5 {
		t.Errorf("%d requests were seen", b.loaded)
	}
}

// do runs actions.
func (b *tab) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// resize emulates a screen.
func (b *tab) resize(t *testing.T, width, height int64, mobile bool) {
	t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: mobile,
	}); err != nil {
		t.Fatal(err)
	}
}

// evaluate runs a script.
func (b *tab) evaluate(t *testing.T, script string) {
	t.Helper()
	if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[any]("(() => {"+script+"})()")); err != nil {
		t.Fatal(err)
	}
}

// waitFor waits until an expression is true.
func (b *tab) waitFor(t *testing.T, what, expression string) {
	t.Helper()
	limit := patience
	if os.Getenv("SCREENSHOT") != "" {
		limit = 3 * patience
	}
	netlab.Eventually(t, limit, func() error {
		yes, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if !yes {
			return fmt.Errorf("%s: not met in time: %s", what, expression)
		}
		return nil
	})
}

// text returns the text that an expression yields.
func (b *tab) text(t *testing.T, expression string) string {
	t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		t.Fatal(err)
	}
	return out
}
