package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// step is a part of the show. It leaves everything as it found it, apart from the
// daemon, so that each one can be shown alone.
type step struct {
	name, title string
	daemon      bool // whether nftproxy must run before it
	show        func(*demo) error
}

var steps = []step{
	{"network", "A client, a node, and pods behind it, each in a network namespace", false, (*demo).network},
	{"input", "What is wanted: " + inputName + ", as Kubernetes would say it", false, (*demo).input},
	{"rules", "What the kernel will get", false, (*demo).rules},
	{"balance", "nftproxy starts, and the client makes requests", false, (*demo).balance},
	{"replace", "A pod is replaced while requests arrive", true, (*demo).replacePod},
	{"explain", "Where does a connection go, and why?", true, (*demo).explain},
	{"status", "What does this node serve?", true, (*demo).status},
	{"flush", "Another program flushes all rules while requests arrive", true, (*demo).flush},
	{"kill", "nftproxy is killed while requests arrive", true, (*demo).killDaemon},
	{"many", "10,000 Services, and one of them changes", true, (*demo).many},
	{"zero", "No endpoint is left", true, (*demo).zero},
	{"cleanup", "nftproxy ends, and its tables are removed", true, (*demo).cleanup},
}

// choose returns the step with a number or name, or all steps.
func choose(selected string) ([]step, error) {
	if selected == "" {
		return steps, nil
	}
	if n, err := strconv.Atoi(selected); err == nil && n >= 1 && n <= len(steps) {
		return steps[n-1 : n], nil
	}
	var names []string
	for i, s := range steps {
		if s.name == selected {
			return steps[i : i+1], nil
		}
		names = append(names, s.name)
	}
	return nil, fmt.Errorf("STEP=%s: unknown step: use 1 to %d, or one of %s", selected, len(steps), strings.Join(names, ", "))
}

// show shows a step, after the steps that it needs.
func (d *demo) show(s step) error {
	if s.daemon && d.daemon == nil {
		if err := d.startQuietly(); err != nil {
			return err
		}
	}
	number := 1 + slices.IndexFunc(steps, func(other step) bool { return other.name == s.name })
	fmt.Fprintf(d.out, "\n%s\n\n", d.styled(bold, fmt.Sprintf("%d. %s", number, s.title)))
	return s.show(d)
}

const (
	bold = "\x1b[1m"
	cyan = "\x1b[36m"
	dim  = "\x1b[2m"
	end  = "\x1b[0m"
)

func (d *demo) styled(style, text string) string {
	if !d.paint {
		return text
	}
	return style + text + end
}

// say prints a sentence.
func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// network draws the network.
func (d *demo) network() error {
	left := fmt.Sprintf("client %s ── node %s ──", d.lab.Client.IPv4, d.lab.Node.IPv4)
	for i, pod := range d.lab.Pods {
		branch, note := "├", ""
		switch i {
		case 0:
			branch = "┬"
		case len(d.lab.Pods) - 1:
			branch, note = "└", "  (comes later)"
		}
		d.say("%s%s─ %s %s:%d%s", left, branch, pod.Name, pod.IPv4, serverPort, note)
		left = strings.Repeat(" ", utf8.RuneCountInString(left))
	}
	d.say("\nEach pod runs a web server that answers with its name. The node forwards packets;\n" +
		"nothing listens on the addresses that the client will use.")
	return nil
}

// input shows the Service and the EndpointSlice of the input file.
func (d *demo) input() error {
	documents := strings.Split(d.sample, "---\n")
	for i, document := range documents[1:] {
		if i > 0 {
			d.say("---")
		}
		fmt.Fprint(d.out, document)
	}
	d.say("... and the Node, whose address serves the NodePort")
	return nil
}

// rules shows the rules that a connection to the load balancer IP meets.
func (d *demo) rules() error {
	text, err := d.output(0, "render", inputName)
	if err != nil {
		return err
	}
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	shown := 0
	block := "" // the map or chain that the line belongs to
	for _, line := range all {
		if strings.HasPrefix(line, "\tmap ") || strings.HasPrefix(line, "\tchain ") || strings.HasPrefix(line, "\tset ") {
			block = strings.Fields(line)[1]
		}
		if strings.HasPrefix(line, "table ip6") {
			break
		}
		if excerpt(block, line) {
			d.say("%s", line)
			shown++
		}
	}
	if shown < 8 {
		return fmt.Errorf("the excerpt of the rules has %d lines:\n%s", shown, text)
	}
	d.say("\n... %d of %d lines; all: bin/nftproxy render -f demo/services.yaml", shown, len(all))
	d.say("\nThe first map finds the Service, the second one the chain that takes turns, and the third one has\n" +
		"the endpoints: another Service is another element, not another chain.")
	return nil
}

// excerpt reports whether a line says how the load balancer IP is served.
func excerpt(block, line string) bool {
	switch block {
	case "services", "endpoints":
		return strings.Contains(line, "203.0.113.10") || strings.Contains(line, "map ")
	case "lanes":
		return strings.Contains(line, "goto rr-") || strings.Contains(line, "map ")
	case "rr-3-13", "choose":
		return !strings.HasSuffix(line, "}") && strings.TrimSpace(line) != ""
	}
	return false
}

// balance starts nftproxy and sends requests to each frontend.
func (d *demo) balance() error {
	if d.daemon == nil {
		d.command("run", inputName)
		if err := d.start(); err != nil {
			return err
		}
		if _, err := d.daemon.applied(d.out); err != nil {
			return err
		}
	}
	err := d.balanced(d.lab.Pods[:endpoints])
	d.say("\nEndpoints take turns. One connection in eight, at random, uses another counter, so that\n" +
		"clients with a rhythm do not all meet the same endpoint: counts differ by one or two.")
	return err
}

// explain traces a connection.
func (d *demo) explain() error {
	args := []string{"--from", d.lab.Client.IPv4.String(), "tcp", frontends[0].address}
	text, err := d.output(0, "explain", inputName, args...)
	if err != nil {
		return err
	}
	head, path, found := strings.Cut(text, "\npath\n")
	if !found || strings.Count(head, "33.3 %") != endpoints {
		return fmt.Errorf("explain prints\n%s", text)
	}
	fmt.Fprint(d.out, head)
	d.say("... and %d lines with each rule on the way", strings.Count(path, "\n"))
	return nil
}

// status asks the daemon about everything, and about a Service.
func (d *demo) status() error {
	for _, args := range [][]string{{"status"}, {"describe", "default/shop"}} {
		text, err := d.output(0, args[0], "", args[1:]...)
		if err == nil && !strings.Contains(text, frontends[0].address) {
			err = fmt.Errorf("no %s in\n%s", frontends[0].address, text)
		}
		if err != nil {
			return err
		}
		d.say("%s\n", strings.TrimSpace(text))
	}
	return nil
}

// zero removes all endpoints, and puts them back.
func (d *demo) zero() error {
	line, err := d.change(withEndpoints(d.sample))
	if err != nil {
		return err
	}
	d.say("%s\n", line)
	if err := d.refused(); err != nil {
		return err
	}
	d.say("\nClients learn it immediately instead of waiting for a timeout.")
	_, err = d.change(d.sample)
	return err
}

// cleanup ends the daemon and removes its tables.
func (d *demo) cleanup() error {
	if err := d.daemon.stop(d.out); err != nil {
		return err
	}
	d.daemon = nil
	text, err := d.output(0, "cleanup", "")
	if err != nil {
		return err
	}
	fmt.Fprint(d.out, text)
	rules, err := d.nft("list", "ruleset")
	if err == nil && rules != "" {
		err = fmt.Errorf("rules are left:\n%s", rules)
	}
	d.say("Nothing is left.")
	return err
}
