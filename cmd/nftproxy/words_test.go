package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// wordsLab is a machine without Kubernetes, whose nftproxy reads Balances that have one thing or
// another to say.
type wordsLab struct {
	*drainLab
	dir, conf, socket string
	daemon            *process
	ran               map[string]bool // commands
}

const worded = `kind: Balance
name: web
description: an endpoint of Services
listen: [203.0.113.10:80]
backends: [FIRST:8080, {address: SECOND:8080, weight: 2}, "10.99.0.9:8080"]
check: {tcp, interval: 1s}
affinity: 5m
limits: {rate: 1000/second}
deny: [10.9.0.0/16]
---
kind: Balance
name: games
listen: ["203.0.113.10:5000-5010"]
backends: [FIRST, {address: SECOND, drain: true}, {address: 10.99.0.7, backup: true}]
scheduler: maglev
---
kind: Balance
name: none
listen: ["203.0.113.12:53/udp"]
backends: [{address: FIRST, drain: true}]
---
kind: Balance
name: rival
listen: ["203.0.113.10:80", "203.0.113.13:80"]
backends: [FIRST:9]
---
kind: Balance
name: dead
listen: ["203.0.113.14:80"]
backends: ["10.99.0.9:8080", "10.99.0.10:8080"]
check: {tcp, interval: 1s}
slowStart: 30s
---
kind: Balance
name: relayed
listen: ["203.0.113.15:80"]
backends: [FIRST:8080, "127.0.0.1:9"]
check: {tcp, interval: 1s}
relay: proxy-v2
`

func newWordsLab(t *testing.T) *wordsLab {
	t.Helper()
	dir := t.TempDir()
	l := &wordsLab{newDrainLab(t), dir, filepath.Join(dir, "conf"), filepath.Join(dir, "run", "control.sock"), nil, make(map[string]bool)}
	l.file = filepath.Join(dir, "state", "drain.yaml")
	if err := os.Mkdir(l.conf, 0o700); err != nil {
		t.Fatal(err)
	}
	l.write(filepath.Join(l.conf, "balances.yaml"), worded)
	return l
}

func (l *wordsLab) write(path, text string) {
	l.t.Helper()
	text = strings.NewReplacer("FIRST", l.Pods[0].IPv4.String(), "SECOND", l.Pods[1].IPv4.String()).Replace(text)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// startDaemon runs nftproxy until its checks have failed for the servers that are not there.
func (l *wordsLab) startDaemon() {
	l.t.Helper()
	l.daemon = startCommand(l.t, l.Node.Namespace, asNftproxy(l.t, "run", "-f", l.conf, "--drain-file", l.file, "--changes-file", filepath.Join(l.dir, "state", "changes.yaml"),
		"--control-socket", l.socket, "--metrics-bind-address", "127.0.0.1:7011", "--healthz-bind-address", "127.0.0.1:7012",
		"--service-metrics", "--endpoint-metrics", "--observe=connections", "--log-connections=all", "--answer-ping"))
	eventually(l.t, "a failed check", func() bool {
		_, text := get(l.t, l.Node.Namespace, "http://127.0.0.1:7011"+api.StatusPath)
		return strings.Contains(text, string(model.CheckFailing)) && strings.Contains(text, "both servers fail")
	})
}

// words of Kubernetes, which no Balance has. Words in names, flags and keys are part of an
// interface, such as --endpoint-metrics, endpoint-routes, NoEndpoints and endpoint=10.1.1.2:80.
var foreignWords = regexp.MustCompile(`(^|[^-\w./@="])(Services?|[Ee]ndpoints?|ENDPOINTS?|SERVICES?|ClusterIPs?|load balancer IPs?|EndpointSlices?|[Pp]ods?)($|[^-\w=])`)

// foreignFields are annotations of Services. A Balance has fields.
var foreignFields = regexp.MustCompile(`nftproxy\.dev/[a-z]+(-[a-z]+)*`)

// Parts of the output that are not in our words: rules and elements as nft prints them, in which
// comments stay as they are, what the author of a file wrote, and checks about others who serve
// Services here.
var foreignParts = []*regexp.Regexp{
	regexp.MustCompile(`(?ms)^path$.*?(\n\n|\z)`),
	regexp.MustCompile(`(?ms)^table ip6? nftproxy$.*?(\n\n|\z)`),
	regexp.MustCompile(`an endpoint of Services`),
	regexp.MustCompile(`(?m)^(ok|warning) +(kube-proxy|kube-proxy-rules|other-proxies|neighbours): .*(\n {5,}.*)*`),
}

// check compares the words of an output.
func (l *wordsLab) check(what, text string) {
	l.t.Helper()
	rest := text
	for _, p := range foreignParts {
		rest = p.ReplaceAllString(rest, "")
	}
	for line := range strings.Lines(rest) {
		if found := foreignWords.FindString(line) + foreignFields.FindString(line); found != "" {
			l.t.Errorf("%s says %q:\n  %s", what, strings.TrimSpace(found), strings.TrimSpace(line))
		}
	}
}

// say runs a command, and compares the words of its output.
func (l *wordsLab) say(args ...string) string {
	l.t.Helper()
	l.ran[args[0]] = true
	if strings.HasSuffix(args[0], "drain") {
		args = append(args, "--drain-file", l.file)
	}
	r := ask(l.t, l.Node.Namespace, args...)
	if strings.Contains(r.stderr, "--help") {
		l.t.Fatalf("nftproxy %s: %s", strings.Join(args, " "), r.stderr)
	}
	l.check("nftproxy "+strings.Join(args, " "), r.stdout+"\n"+r.stderr)
	return r.stdout + r.stderr
}

// has fails if a text lacks a part.
func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in:\n%s", p, text)
		}
	}
}

// ofFiles runs the commands that read the files.
func (l *wordsLab) ofFiles() {
	newer := filepath.Join(l.dir, "new.yaml")
	l.write(newer, strings.NewReplacer("weight: 2", "weight: 3", "name: none", "name: nothing", `"10.99.0.9:8080"`, `"10.99.0.8:8080"`, "drain: true", "weight: 1").Replace(worded))
	l.say("validate", "-f", l.conf)
	for _, name := range []string{"web", "games", "none", "rival", "dead", "relayed", "wbe"} {
		l.say("describe", "-f", l.conf, name)
		l.say("explain", "-f", l.conf, name)
	}
	for _, at := range []string{"203.0.113.10:80", "203.0.113.12:53", "203.0.113.12:54", "203.0.113.99:80"} {
		l.say("explain", "-f", l.conf, "--from", "10.9.0.1", at)
	}
	l.say("explain", "-f", l.conf, "--answer-ping", "icmp", "203.0.113.12")
	l.say("diff", "-f", l.conf)
	l.say("diff", "--from", l.conf, "-f", newer)
	l.say("diff", "--from", l.conf, "-f", newer, "-o", "markdown", "--elements=never")
	l.say("check", "-f", l.conf)
}

// ofDaemon runs the commands that ask the running nftproxy.
func (l *wordsLab) ofDaemon() {
	for _, args := range [][]string{{"status"}, {"status", "-A"}, {"status", "--problems"}, {"status", "none"}, {"status", "zzz"}, {"status", "--serves", "web"}, {"status", "--serves", "none"},
		{"top", "--once"}, {"top", "--once", "default/web"}, {"top", "--once", "default/zzz"}, {"top", "--once", "--filter", "zzz"},
		{"describe", "web", "--connections"}, {"describe", "none"}, {"describe", "rival"}, {"describe", "dead"}, {"describe", "relayed"}, {"explain", "relayed"}, {"describe", "zzz"}, {"explain", "web"}, {"explain", "none"}, {"explain", "zzz"},
		{"diff", "-f", l.conf}, {"observe", "--last", "20"}, {"observe", "web"}, {"test", "web", "--wait", "1s"}, {"test", "none", "--from", "host", "--wait", "1s"},
		{"trace", "--probe", "203.0.113.10:80"}, {"trace", "--probe", "udp", "203.0.113.12:53"}} {
		l.say(args...)
	}
}

// ofChanges runs the commands that change servers.
func (l *wordsLab) ofChanges() {
	first := l.Pods[0].IPv4.String()
	for _, args := range [][]string{{"drain"}, {"drain", first}, {"drain", first, "--force"}, {"drain"}, {"drain", "10.1.2.3"}, {"drain", "10.1.2.3", "--service", "default/web"},
		{"drain", l.Pods[1].IPv4.String(), "--service", "default/web"}, {"drain"}, {"status"}, {"undrain", "10.1.2.4", "--service", "default/web"}, {"undrain", first}, {"undrain", "--all"}} {
		l.say(args...)
	}
	for _, args := range [][]string{{"set", "web", first, "weight=3"}, {"set"}, {"describe", "web"}, {"set", "zzz", first, "weight=3"}, {"set", "web", "10.1.2.3", "weight=3"}, {"add", "web", "10.1.2.3"},
		{"remove", "web", "10.1.2.3"}, {"remove", "none", first}, {"disable", "web", first}, {"disable", "rival", first}, {"enable", "web", first}, {"undo", "--all"}} {
		if args[0] != "describe" {
			args = append(args, "--control-socket", l.socket)
		}
		l.say(args...)
	}
}

// TestWordsOfBalances: 11.27. On a machine with Balances alone, no command, page or line of the log
// has a word of Kubernetes.
func TestWordsOfBalances(t *testing.T) {
	l := newWordsLab(t)
	l.ofFiles()
	l.startDaemon()
	l.ofDaemon()
	l.ofChanges()
	for _, page := range []string{"/healthz", "/healthz/default/web", "/healthz/default/none", "/healthz/default/zzz"} {
		_, text := get(t, l.Node.Namespace, "http://127.0.0.1:7012"+page)
		l.check(page, text)
	}
	l.stop(l.daemon)
	l.check("the log", l.daemon.log.String())
	for _, args := range [][]string{{"status"}, {"describe", "web"}, {"describe", "none"}, {"explain", "web"}, {"explain", "203.0.113.10:80"}, {"explain", "udp", "203.0.113.12:53"}, {"apply", "-f", l.conf}} {
		l.say(args...)
	}
	l.everyCommand()
}

// otherCommands say nothing about Balances that are served.
var otherCommands = map[string]string{
	"new": "prints a file", "import": "prints a file", "schema": "prints a schema", "render": "prints rules or objects", "bundle": "writes an archive for maintainers", "peer": "answers the connections of a test in a cluster",
	"cleanup": "removes tables, whatever they serve", "run": "its log is compared", "migrate": "is for clusters", "cluster": "is for clusters", "version": "prints a version",
	"completion": "prints a script", "help": "prints help",
}

func (l *wordsLab) everyCommand() {
	l.t.Helper()
	for _, c := range rootCommand().Commands() {
		if _, other := otherCommands[c.Name()]; !other && !l.ran[c.Name()] {
			l.t.Errorf("nftproxy %s is not tried", c.Name())
		}
	}
}

// TestWordsOfServices: 11.27. Services have the words of Kubernetes, and beside Balances each has its own.
func TestWordsOfServices(t *testing.T) {
	file := writeFile(t, service)
	r := execute("", "describe", "-f", file, "--hostname-override", "node-1", "web")
	has(t, r.stdout, "Service default/web on node node-1: 2 endpoints take connections", "ENDPOINT", "ClusterIP")
	r = execute("", "describe", "-f", file, "wbe")
	has(t, r.stderr, `no Service is named "wbe"`)
	balance := writeFile(t, strings.NewReplacer("FIRST", "10.1.1.2", "SECOND", "10.1.1.3", "name: web", "name: front").Replace(worded))
	both := []string{"-f", file, "-f", balance}
	r = execute("", append([]string{"describe", "games", "--hostname-override", "m1"}, both...)...)
	has(t, r.stdout, "Balance games on machine m1: 1 of 3 servers take connections", "SERVER")
	r = execute("", append([]string{"describe", "zzz"}, both...)...)
	has(t, r.stderr, "no Service or Balance is named")
	r = execute("", append([]string{"diff", "--from", file}, both...)...)
	has(t, r.stdout, "Balances: 6 added.")
	r = execute("", "diff", "--from", balance, "-f", file)
	has(t, r.stdout, "Services and Balances: 1 added, 6 removed.", "default/web")
}
