package changes

import (
	"fmt"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
)

func checkDetail(before, after *model.Check) (Detail, bool) {
	row := setting.Check
	d := settingDetail(row, row.Default, row.Default)
	if before != nil {
		d.Old = wholeCheck(before)
	}
	if after != nil {
		d.New = wholeCheck(after)
	}
	d.Text = row.Label + " " + d.Old + " → " + d.New
	if before != nil && after != nil && before.What() == after.What() {
		list := differingSettings(before.Settings(), after.Settings())
		if len(list) == 0 {
			return d, false
		}
		d.Text = row.Label + " " + after.What() + ": " + strings.Join(list, ", ")
	}
	return d, before != nil || after != nil
}

// wholeCheck returns for example "http GET /healthz every 10s, fall 10": what differs from
// the defaults.
func wholeCheck(c *model.Check) string {
	settings := c.Settings()
	text := c.What() + " every " + settings[0].Value
	for _, s := range settings {
		if s.Value != s.Usual {
			text += ", " + s.Name + " " + excerptOf(s.Value)
		}
	}
	return text
}

// differingSettings returns for example "fall 3 → 10". Both checks have the same type and
// therefore the same settings.
func differingSettings(before, after []model.CheckSetting) (out []string) {
	for i, b := range after {
		switch a := before[i]; {
		case a.Value == b.Value:
		case excerptOf(a.Value) == excerptOf(b.Value):
			out = append(out, b.Name+" "+excerptOf(b.Value)+" changes behind that")
		default:
			out = append(out, b.Name+" "+excerptOf(a.Value)+" → "+excerptOf(b.Value))
		}
	}
	return out
}

// excerptOf returns the begin of a long text, with the number of its bytes.
func excerptOf(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:most], ""), len(text))
}
