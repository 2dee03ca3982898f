// Package telemetrytest compares what a part registers with the table.
package telemetrytest

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"rollbox.dev/node/internal/telemetry"
)

// Fits fails unless a registry has the metrics of a part, each with at least one series, and no others, and no label or
// value that the table has not.
func Fits(t *testing.T, registry prometheus.Gatherer, part string) {
	t.Helper()
	gathered, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var there, wanted []string
	for _, family := range gathered {
		there = append(there, family.GetName())
	}
	for _, row := range telemetry.All {
		if row.Part == part {
			wanted = append(wanted, row.Name)
		}
	}
	slices.Sort(wanted)
	if !slices.Equal(there, wanted) {
		t.Fatalf("%s has %v, the table %v", part, there, wanted)
	}
	for _, family := range gathered {
		row := telemetry.All[slices.IndexFunc(telemetry.All, func(one *telemetry.Family) bool { return one.Name == family.GetName() })]
		if family.GetHelp() != row.Help {
			t.Errorf("%s says %q, the table %q", row.Name, family.GetHelp(), row.Help)
		}
		for _, series := range family.GetMetric() {
			if len(series.GetLabel()) != len(row.Labels) {
				t.Errorf("%s has labels %v", row.Name, series.GetLabel())
			}
			for _, label := range series.GetLabel() {
				if !row.Allows(label.GetName(), label.GetValue()) {
					t.Errorf("%s has %s=%q, which the table has not", row.Name, label.GetName(), label.GetValue())
				}
			}
		}
	}
}
