package worlds

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/testkit/worlds"
)

// Sizes of a world.
const (
	questions = 8 // before the first step, and after each
	packets   = 2 // for a question
	attempts  = 5 // while the rules change, as by health checks and slow starts
)

// gateSeeds is how many worlds each run of the tests has.
const gateSeeds = 24

var (
	many  = flag.Int("worlds", 0, "number of random worlds; 0: the fixed ones")
	steps = flag.Int("steps", 2, "number of steps of a world")
	seed  = flag.Uint64("seed", 0, "seed of the first random world, those of the others follow; 0: a random one")
)

// TestWorlds: in random worlds the diff of the input is empty after each step, and packets go where
// explain says (12.86). The seed of a world is in the name of its test.
func TestWorlds(t *testing.T) {
	first, n := uint64(1), gateSeeds
	if *many > 0 {
		if first, n = *seed, *many; first == 0 {
			first = rand.Uint64N(1 << 40)
		}
		fmt.Fprintf(t.Output(), "seeds %d to %d\n", first, first+uint64(n)-1)
	}
	asked := new(tally)
	t.Cleanup(func() { fmt.Fprintf(t.Output(), "%d worlds, questions by their answer: %v\n", n, asked.numbers) })
	for i := range uint64(n) {
		t.Run(fmt.Sprint(first+i), func(t *testing.T) {
			t.Parallel()
			checkWorld(t, first+i, asked)
		})
	}
}

// tally counts the questions of all worlds by the verdict of explain.
type tally struct {
	sync.Mutex
	numbers map[string]int
}

func (c *tally) add(a *explain.Result) {
	verdict := "mixed"
	if d, ok := a.Verdict(); ok {
		verdict = d.String()
	}
	c.Lock()
	defer c.Unlock()
	if c.numbers == nil {
		c.numbers = make(map[string]int)
	}
	c.numbers[verdict]++
}

// checkWorld serves a world, and checks it after each step.
func checkWorld(t *testing.T, seed uint64, asked *tally) {
	w := worlds.New(seed)
	n := newNode(t, w)
	n.asked = asked
	n.write()
	n.start()
	defer func() { n.stop(syscall.SIGTERM) }()
	story := []string{"start"}
	n.settle(story[0])
	for round := range 1 + *steps {
		if round > 0 {
			step := w.Next()
			story = append(story, step.String())
			n.take(step)
		}
		if problems := n.check(w.Questions(questions)); len(problems) > 0 {
			t.Errorf("after step %d (%s), flags %q %q:\n%s", round, strings.Join(story, "; "), w.Flags.Rules, w.Flags.Daemon, strings.Join(problems, "\n"))
			n.show()
			return
		}
	}
}

// show prints the input and the log.
func (n *node) show() {
	texts, err := n.world.Files()
	for name, text := range texts {
		fmt.Fprintf(n.t.Output(), "%s: %s\n", name, text)
	}
	fmt.Fprintf(n.t.Output(), "%v\nlog of nftproxy:\n%s\n", err, n.log.String())
}

// check returns the questions whose packets go elsewhere than explain says, with both answers.
// Those during which the rules have changed are asked again.
func (n *node) check(all []worlds.Question) (problems []string) {
	n.t.Helper()
	for range attempts {
		answers, before, err := n.explain(all)
		if err != nil {
			n.t.Fatal(err)
		}
		results := n.sendAll(all, answers)
		var again []worlds.Question
		problems = nil
		for i, q := range all {
			x := expect(q, answers[i])
			n.asked.add(answers[i])
			for _, r := range results[i] {
				if !x.allows(r) {
					again = append(again, q)
					problems = append(problems, fmt.Sprintf("%s: %s; explain: %s", q, r, summary(answers[i])))
					break
				}
			}
		}
		if all = again; len(all) == 0 {
			return nil
		}
		if after := n.Node.TestGeneration(n.t); after == before && !n.mayVary(all) {
			return problems
		}
	}
	return problems
}

// mayVary reports whether a question is about a relay, which has servers of its own: the generation
// of the rules does not show when these change.
func (n *node) mayVary(all []worlds.Question) bool {
	answers, _, err := n.explain(all)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, a := range answers {
		for _, o := range a.Outcomes {
			if o.Relay != 0 {
				return true
			}
		}
	}
	return false
}

// sendAll sends the packets of all questions at the same time.
func (n *node) sendAll(all []worlds.Question, answers []*explain.Result) [][packets]result {
	out := make([][packets]result, len(all))
	var running sync.WaitGroup
	for i, q := range all {
		wait := expect(q, answers[i]).wait()
		for k := range packets {
			running.Go(func() { out[i][k] = n.send(q, wait) })
		}
	}
	running.Wait()
	return out
}

// summary returns the outcomes in an answer.
func summary(a *explain.Result) string {
	var out []string
	for _, o := range a.Outcomes {
		out = append(out, fmt.Sprintf("%s %s %s share %.2f masquerade %q relay %d", o.Verdict, o.Reason, o.Endpoint, o.Share, o.Masquerade, o.Relay))
	}
	return strings.Join(out, ", ")
}
