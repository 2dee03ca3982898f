package plan

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Table is the plan for people.
func (p Plan) Table() string {
	if len(p) == 0 {
		return "nothing to do: the node has all of it\n"
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STEP\tWHAT\tWHY\tMODE\tSHA256")
	for _, step := range p {
		mode, digest := "", ""
		if step.Do == Write {
			mode, digest = fmt.Sprintf("%04o", step.Mode), step.Digest[:min(12, len(step.Digest))]
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", step.Do, step.Target, step.Why, mode, digest)
	}
	_ = table.Flush()
	lines := strings.Split(text.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
