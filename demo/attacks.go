package main

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// replacePod replaces an endpoint by another one under load, and back.
func (d *demo) replacePod() error {
	old, next := d.lab.Pods[endpoints-1], d.lab.Pods[endpoints]
	changed := strings.Replace(d.sample, old.IPv4.String(), next.IPv4.String(), 1)
	planned, err := d.plan(changed)
	if err != nil {
		return err
	}
	l := d.load()
	defer l.finish()
	l.more(enough)
	before := l.reset()
	line, err := d.change(changed)
	if err != nil {
		return err
	}
	during := l.reset()
	d.say("\n%s\n", line)
	if got := counts(line); got != planned {
		return fmt.Errorf("the plan has %s, and the log %s", planned, got)
	}
	if err := d.servers[old].Close(); err != nil {
		return err
	}
	l.more(enough)
	after, err := l.finish()
	if err != nil {
		return err
	}
	d.table("requests to "+frontends[0].address, []row{{"before", before}, {"during", during}, {"after", after}})
	if err := errors.Join(before.all(d.lab.Pods[:endpoints]), after.only(d.lab.Pods[0], d.lab.Pods[1], next)); err != nil {
		return err
	}
	d.say("\n%d requests, 0 failed. %s has ended, and no request goes there any more.", before.total()+during.total()+after.total(), old.Name)
	if err := d.serve(old); err != nil {
		return err
	}
	_, err = d.change(d.sample)
	return err
}

// ownedSince is the first kernel that protects tables.
const ownedSince = "6.9"

func protects(release string) bool {
	var major, minor int
	_, err := fmt.Sscanf(release, "%d.%d", &major, &minor)
	return err == nil && (major > 6 || major == 6 && minor >= 9)
}

// flush lets another program flush and delete the rules, under load.
func (d *demo) flush() error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	if release := unix.ByteSliceToString(name.Release[:]); !protects(release) {
		d.say("Left out: this is Linux %s. Kernels before %s let others flush the rules;\n"+
			"nftproxy then writes them again immediately, and logs which process it was.", release, ownedSince)
		return nil
	}
	l := d.load()
	defer l.finish()
	l.more(enough)
	if _, err := d.nft("flush", "ruleset"); err != nil {
		return err
	}
	tables, err := d.nft("list", "tables")
	if err != nil || !strings.Contains(tables, "table ip nftproxy\n") {
		return fmt.Errorf("tables after the flush: %q, %w", tables, err)
	}
	refusal, err := d.nft("delete", "table", "ip", "nftproxy")
	if err == nil || !strings.Contains(refusal, "not permitted") {
		return fmt.Errorf("the table could be deleted: %v", err)
	}
	l.more(enough)
	answers, err := l.finish()
	if err != nil {
		return err
	}
	if err := answers.all(d.lab.Pods[:endpoints]); err != nil {
		return err
	}
	d.say("\n%d requests meanwhile, 0 failed: the kernel lets only nftproxy change its tables.", answers.total())
	return nil
}

// killDaemon kills nftproxy under load, and starts it again.
func (d *demo) killDaemon() error {
	l := d.load()
	defer l.finish()
	l.more(enough)
	d.prompt("kill -9 %d", d.daemon.cmd.Process.Pid)
	d.daemon.kill()
	before := l.reset()
	l.more(enough)
	without := l.reset()
	if err := d.startAgain(); err != nil {
		return err
	}
	l.more(enough)
	after, err := l.finish()
	if err != nil {
		return err
	}
	d.table("requests to "+frontends[0].address, []row{{"before", before}, {"without nftproxy", without}, {"after its start", after}})
	for _, a := range []answers{before, without, after} {
		if err := a.all(d.lab.Pods[:endpoints]); err != nil {
			return err
		}
	}
	d.say("\n%d requests, 0 failed: the rules are in the kernel. The new process takes them over.",
		before.total()+without.total()+after.total())
	return nil
}

// startAgain starts nftproxy with the rules of the one before in the kernel, and
// shows that it writes none.
func (d *demo) startAgain() error {
	d.command("run", inputName)
	if err := d.start(); err != nil {
		return err
	}
	if _, err := d.daemon.says(d.out, "listening"); err != nil {
		return err
	}
	d.command("status", "")
	for wait := d.daemon.newWait("synced"); ; {
		text, err := d.run("status", "")
		if line := lastSync.FindString(text); err == nil && line != "" {
			d.say("...\n%s\n...\n", line)
			if !strings.HasSuffix(line, ": 0 added, 0 changed, 0 deleted") {
				return errors.New("nftproxy has changed rules at its start")
			}
			return nil
		}
		if stuck := wait.check(time.Now()); stuck != nil {
			return errors.Join(stuck, err)
		}
		time.Sleep(10 * time.Millisecond) // between two attempts
	}
}

var lastSync = regexp.MustCompile(`(?m)^last sync .*\d.*$`)

// many loads thousands of Services, and changes one endpoint.
func (d *demo) many() error {
	const services = 10_000
	more := manyServices(services - 1)
	line, err := d.change(d.sample + more)
	if err != nil {
		return err
	}
	d.say("%s\n", line)
	if got := field(line, "services"); got != fmt.Sprint(services) {
		return fmt.Errorf("%s Services, want %d", got, services)
	}
	loaded := field(line, "duration")
	old, next := d.lab.Pods[endpoints-1], d.lab.Pods[endpoints]
	if line, err = d.change(strings.Replace(d.sample, old.IPv4.String(), next.IPv4.String(), 1) + more); err != nil {
		return err
	}
	d.say("%s\n", line)
	if err := d.balanced([]host{d.lab.Pods[0], d.lab.Pods[1], next}); err != nil {
		return err
	}
	replaced := field(line, "duration")
	if line, err = d.change(d.sample + more); err != nil {
		return err
	}
	d.say("\n%s\n", line)
	d.say("Loaded in %s. One endpoint replaced in %s, and back in %s: other Services are neither\n"+
		"read from the kernel nor written. (Reading 3 MB of YAML again takes longer than that; an API\n"+
		"server sends one object.)", loaded, replaced, field(line, "duration"))
	_, err = d.change(d.sample)
	return err
}

// manyServices returns Services with four endpoints each.
func manyServices(n int) string {
	var b strings.Builder
	for i := range n {
		high, low := i/250, i%250+1
		fmt.Fprintf(&b, `---
{apiVersion: v1, kind: Service, metadata: {name: s%[1]d, namespace: many}, spec: {clusterIP: 10.97.%[2]d.%[3]d, ports: [{port: 80}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s%[1]d-1, namespace: many, labels: {kubernetes.io/service-name: s%[1]d}},
 addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.129.%[2]d.%[3]d]}, {addresses: [10.130.%[2]d.%[3]d]},
 {addresses: [10.131.%[2]d.%[3]d]}, {addresses: [10.132.%[2]d.%[3]d]}]}
`, i, high, low)
	}
	return b.String()
}

// nft runs nft on the node, shows its output, and returns it.
func (d *demo) nft(args ...string) (string, error) {
	d.prompt("nft %s", strings.Join(args, " "))
	path, err := exec.LookPath("nft")
	if err != nil {
		path = "/usr/sbin/nft" // not in the PATH of every user
	}
	var out strings.Builder
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err = d.lab.Node.Run(cmd)
	fmt.Fprint(d.out, out.String())
	return out.String(), err
}

// field returns the value of an attribute in a line of the log.
func field(line, name string) string {
	m := regexp.MustCompile(`\b` + name + `=(\S+)`).FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	return m[1]
}
