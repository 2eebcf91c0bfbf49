package main

// stage is one step from objects to rules.
type stage struct {
	pkg      string // in internal
	does     []string
	value    string // that it passes on
	commands string // that end here
}

var stages = []stage{
	{"source", []string{"reads, follows and", "checks objects"}, "Snapshot", "validate"},
	{"model", []string{"which endpoints;", "forward, reject, drop"}, "Routing", ""},
	{"render", []string{"rules, and elements", "of sets and maps"}, "Ruleset", "render, explain"},
	{"plan", []string{"compares; keeps slots;", "orders the changes"}, "Plan", "diff"},
	{"apply", []string{"a few netlink batches;", "retries"}, "Transaction", "apply, run"},
}

// architecture draws the way from objects to rules, and the way of packets.
func architecture() []byte {
	const (
		w, h, gap, top = 182, 112, 24, 108
		left           = 206
		middle         = top + h/2
	)
	d := newDrawing("From objects to rules", 1400, 372)
	d.box("box", 24, 84, 134, 68, "*YAML files", "`-f FILE")
	d.box("box", 24, 176, 134, 68, "*API server", "~in a cluster")
	d.arrow("", 158, 118, 182, 118, 182, middle-10, left-2, middle-10)
	d.arrow("", 158, 210, 182, 210, 182, middle+10, left-2, middle+10)
	x := float64(left)
	for _, s := range stages {
		d.box("ours", x, top, w, h, append(append([]string{"*" + s.pkg}, s.does...), "`→ "+s.value)...)
		if s.commands != "" {
			d.arrow("dashed", x+w/2, top+h, x+w/2, top+h+36)
			d.centre("code", x+w/2, top+h+56, s.commands)
		}
		d.arrow("", x+w, middle, x+w+gap-2, middle)
		x += w + gap
	}
	d.box("kernel", x, top-24, 140, h+48, "*nf_tables", "`ip nftproxy", "`ip6 nftproxy")
	plan := left + 3*(w+gap) + w/2.0
	d.arrow("dashed", x+24, top-24, x+24, 66, plan, 66, plan, top-2)
	d.text("small muted", plan-440, 58, "current rules: read at the start, hourly, and after changes by other programs")
	d.text("small muted", 24, top+h+56, "commands that stop here:")
	packets := x + 110
	d.arrow("", packets, 46, packets, top-26)
	d.centre("small", packets, 38, "clients")
	d.arrow("", packets, top+h+24, packets, top+h+62)
	d.centre("small", packets, top+h+82, "endpoints")
	d.text("small muted", 24, 330, "Every value between two stages is immutable and printable. Packets pass through the rules in the kernel, never through the process:")
	d.text("small muted", 24, 352, "connections go on while it is restarted, stopped or killed.")
	return d.end()
}
