package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	red, green := look{foreground: palette[1]}, look{foreground: palette[2], bold: true}
	for _, c := range []struct {
		in   string
		want [][]run
	}{
		{"a\r\nb\n", [][]run{{{text: "a"}}, {{text: "b"}}}},
		{"a \x1b[31mred\x1b[0m end", [][]run{{{text: "a "}, {red, "red"}, {text: " end"}}}},
		{"\x1b[1;32mon\ntwo lines\x1b[m", [][]run{{{green, "on"}}, {{green, "two lines"}}}},
		{"\x1b[2J\x1b[?25l\x1b]0;title\x07x", [][]run{{{text: "x"}}}},
		{"\x1b[38;5;196mx", [][]run{{{look{foreground: "#ff0000"}, "x"}}}},
		{"\x1b[38;5;244mx", [][]run{{{look{foreground: "#808080"}, "x"}}}},
		{"\x1b[48;2;1;2;3;1mx", [][]run{{{look{background: "#010203", bold: true}, "x"}}}},
		{"\x1b[38;5mx\x1b[48mx", [][]run{{{text: "x"}, {text: "x"}}}},
		{"\x1b[7;91mx\x1b[27;39my", [][]run{{{look{foreground: palette[9], inverse: true}, "x"}, {text: "y"}}}},
	} {
		if got := parse(c.in); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %+v, want %+v", c.in, got, c.want)
		}
	}
}

// TestPicture wants XML with all of the text, wherever its colours change.
func TestPicture(t *testing.T) {
	svg := picture("<status> & more", parse("\x1b[33m~ 10.0.0.1 -> 10.0.0.2\x1b[0m  # a<b\n\n\x1b[7mbar\x1b[0m\nlast\nhidden"), 5)
	var text strings.Builder
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
		if s, ok := token.(xml.CharData); ok {
			text.Write(s)
		}
	}
	for _, want := range []string{"<status> & more", "~ 10.0.0.1 -> 10.0.0.2", "# a<b", "bar", "last", "..."} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in %s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "hidden") {
		t.Error("more rows than asked for")
	}
}

func TestWrap(t *testing.T) {
	long := strings.Repeat("a", columns-1)
	got := wrap(parse(long + "\x1b[1mbcd\x1b[0me\nshort"))
	bold := look{bold: true}
	want := [][]run{{{text: long}, {bold, "b"}}, {{bold, "cd"}, {text: "e"}}, {{text: "short"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

// TestShow draws two frames as a renderer does that rewrites only changed lines.
func TestShow(t *testing.T) {
	frames := "\x1b[?1049h\x1b[2J\x1b[Hold title\r\nconnections 1\x1b[K\r\nlast" +
		"\x1b[2A\r\x1b[1mnew\x1b[0m\x1b[K\r\n\x1b[12Ctwo\r\n\x1b[J"
	want := [][]run{{{look{bold: true}, "new"}}, {{text: "connections two"}}}
	if got := show(frames, 5); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	scrolled := "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\nnew\x1b[1;4r\x1b[4;2H5"
	want = [][]run{{{text: "1"}}, {{text: "3"}}, {{text: "new"}}, {{text: "45"}}}
	if got := show(scrolled, 4); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := show("0123456789\x1b[Z8\b\tT", 1); !reflect.DeepEqual(got, [][]run{{{text: "0123456789      T"}}}) {
		t.Errorf("tab stops: %+v", got)
	}
	if got := show("\x1b[9;9Hx\x1b[99B\x1b[9Dy\nz", 2); len(got) != 2 {
		t.Errorf("beyond the screen: %+v", got)
	}
}

// TestColumnsAreKept: without xml:space, librsvg joins the spaces of a line, although the
// style forbids it.
func TestColumnsAreKept(t *testing.T) {
	pictures, err := filepath.Glob("../../docs/images/terminal-*.svg")
	if err != nil || len(pictures) == 0 {
		t.Fatalf("pictures: %v, %v", pictures, err)
	}
	for _, path := range pictures {
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), ` xml:space="preserve">`) {
			t.Errorf("%s does not keep spaces: run make screenshots; %v", filepath.Base(path), err)
		}
	}
}

// TestTexts draws a session that was recorded elsewhere, and nothing if there is none.
func TestTexts(t *testing.T) {
	texts, dir := t.TempDir(), t.TempDir()
	if err := shoot([]string{"-texts", texts, dir}); err == nil {
		t.Error("no session, and no error")
	}
	if err := os.WriteFile(filepath.Join(texts, "cluster-status.txt"), []byte("$ kubectl nftproxy status\n\x1b[31mnode-3\x1b[0m  no answer\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := shoot([]string{"-texts", texts, dir}); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "terminal-cluster-status.svg"))
	if err != nil || !bytes.Contains(svg, []byte("<title>$ kubectl nftproxy status</title>")) || !bytes.Contains(svg, []byte(palette[1])) {
		t.Errorf("%v\n%s", err, svg)
	}
}
