package golden

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// foldRepeated replaces elements that are those of a set before them, each with the same
// text behind it.
func foldRepeated(elements []string, before []object) []string {
	for i := range before {
		o := &before[i]
		if len(elements) < 2 || len(o.elements) != len(elements) || !strings.HasPrefix(o.head, "set ") {
			continue
		}
		suffix, repeats := strings.CutPrefix(elements[0], strings.TrimSuffix(o.elements[0], ","))
		for j, e := range elements {
			repeats = repeats && e == strings.TrimSuffix(o.elements[j], ",")+suffix
		}
		if repeats {
			return []string{"each of " + o.head + suffix}
		}
	}
	return elements
}

// manySlots is more slots than a frontend of a case has without a table of Maglev.
const manySlots = 32

// cutSlot splits the element of a slot, such as "10.96.0.10 . tcp . 80 . 0:1 : 10.0.0.1 . 80,"
func cutSlot(element string) (frontend, slot, endpoint string) {
	key, endpoint, _ := strings.Cut(element, " : ")
	i := max(0, strings.LastIndex(key, " . "))
	return key[:i], strings.TrimPrefix(key[i:], " . "), strings.TrimSuffix(endpoint, ",")
}

// foldSlots replaces the slots of a frontend by lines that list the endpoints of several
// ones. Of many slots it leaves one line, which has the number of slots of each endpoint,
// and a sum that depends on their order.
func foldSlots(elements []string) (out []string) {
	for rest := elements; len(rest) > 0; {
		n := 1
		for n < len(rest) && follows(rest[n-1], rest[n]) {
			n++
		}
		group := rest[:n]
		rest = rest[n:]
		if n >= manySlots {
			out = append(out, sumOf(group))
		} else {
			out = append(out, listed(group)...)
		}
	}
	return out
}

// follows reports whether an element is the next slot of the same frontend.
func follows(previous, element string) bool {
	frontend, slot, _ := cutSlot(previous)
	f, s, _ := cutSlot(element)
	// Slots have the numbers 0:1, 0:2 and so on, and 10:1 in the table of clients outside of
	// the cluster; of a range of ports 1 and so on.
	table, n := cutNumber(slot)
	t, m := cutNumber(s)
	return f == frontend && t == table && m == n+1
}

// cutNumber splits a slot such as 0:1f.
func cutNumber(slot string) (table string, number uint64) {
	i := strings.LastIndex(slot, ":") + 1
	base := 16
	if i == 0 {
		base = 10
	}
	number, _ = strconv.ParseUint(slot[i:], base, 64)
	return slot[:i], number
}

// listed returns lines with the endpoints of slots that follow each other.
func listed(group []string) (out []string) {
	frontend, first, line := cutSlot(group[0])
	last := first
	end := func() {
		if first != last {
			first += " to " + last
		}
		out = append(out, fmt.Sprintf("%s . %s : %s,", frontend, first, line))
	}
	for _, e := range group[1:] {
		_, slot, endpoint := cutSlot(e)
		if len(frontend)+len(line)+len(endpoint)+len(" . 10:11 to 10:12 : , ") > width {
			end()
			first, line = slot, endpoint
		} else {
			line += ", " + endpoint
		}
		last = slot
	}
	end()
	return out
}

// sumOf returns one line for all slots of a frontend.
func sumOf(group []string) string {
	slots := make(map[string]int)
	for _, e := range group {
		_, _, endpoint := cutSlot(e)
		slots[endpoint]++
	}
	frontend, first, _ := cutSlot(group[0])
	_, last, _ := cutSlot(group[len(group)-1])
	line := fmt.Sprintf("%s . %s to %s : sum %08x", frontend, first, last, crc32.ChecksumIEEE([]byte(strings.Join(group, ""))))
	for _, e := range slices.Sorted(maps.Keys(slots)) {
		line += fmt.Sprintf(", %d × %s", slots[e], e)
	}
	return line
}
