package main

// pair draws two machines with the addresses of docs/high-availability.md.
func pair() []byte {
	const (
		w, h    = 300, 116
		left    = 390 // of the machines
		servers = 920
		upper   = 84
		lower   = 262
		middle  = (upper + lower + h) / 2
	)
	d := newDrawing("Two machines: one serves both addresses", 1130, 420)
	d.box("box", 24, middle-38, 120, 76, "*clients")
	d.arrow("", 144, middle, 200, middle)
	d.box("box", 202, middle-38, 120, 76, "*router", "`192.0.2.1")
	d.arrow("", 322, middle, 350, middle, 350, upper+h/2, left+6, upper+h/2)
	d.arrow("dashed", 350, middle, 350, lower+h/2, left+6, lower+h/2)
	machine := func(class string, y float64, name, does, own string) {
		d.box(class, left+10, y, w, h, "*"+name, "nftproxy, keepalived, conntrackd", "~"+does, own)
	}
	machine("good", upper, "machine a", "serves 192.0.2.10 and 10.1.0.1", "`192.0.2.2, 10.1.0.2")
	machine("box", lower, "machine b", "stands by", "`192.0.2.3, 10.1.0.3")
	d.text("code", 340, upper+h/2-12, "front")
	d.text("code", left+10+w+12, upper+h/2-12, "back")
	d.arrow("dashed", left+10+w/2, upper+h, left+10+w/2, lower-2)
	d.text("small", left+20+w/2, middle-4, "sync: every connection")
	d.text("small", left+20+w/2, middle+16, "front: advertisements (VRRP)")
	d.arrow("", left+10+w, upper+h/2, servers-60, upper+h/2, servers-60, middle, servers-2, middle)
	d.arrow("dashed", left+10+w, lower+h/2, servers-60, lower+h/2, servers-60, middle)
	d.box("box", servers, middle-60, 180, 120, "*servers", "`10.1.0.11", "`10.1.0.12", "`10.1.0.13")
	d.text("small muted", 24, 404, "If machine a fails, b gets the addresses and has the connections. Both have the same rules; source-hash sends a client to the same server.")
	return d.end()
}
