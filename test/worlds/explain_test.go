package worlds

import (
	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/worlds"
)

// explain answers questions from the kernel of the node, as the command without -f does. It
// returns the generation of the rules as well.
func (n *node) explain(questions []worlds.Question) (answers []*explain.Result, generation uint32, err error) {
	err = n.Node.Do(func() error {
		conn, err := kernel.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		rules, read, err := conn.Read()
		if err != nil {
			return err
		}
		generation = read
		local, err := host.InterfaceAddresses()
		if err != nil {
			return err
		}
		for _, q := range questions {
			p, err := explain.Parse(q.Protocol, q.Target())
			if err != nil {
				return err
			}
			if p.Source, p.Interface = q.Source(), q.From.Device; p.Interface == "" {
				p.FromNode, p.Source = true, conntest.RoutedSource(p.Destination)
			}
			t := rules.Table(model.FamilyOf(p.Destination))
			if t != nil {
				if err := conn.AddBinding(t, p.Source, p.Frontend()); err != nil {
					return err
				}
			}
			answers = append(answers, explain.Explain(t, p, local))
		}
		return nil
	})
	return answers, generation, err
}
