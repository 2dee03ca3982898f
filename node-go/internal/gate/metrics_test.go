package gate

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"rollbox.dev/node/internal/telemetry"
)

// told returns the values of a metric that are not zero, by the value of its label.
func (w *world) told(row telemetry.Family) map[string]float64 {
	w.t.Helper()
	gathered, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range gathered {
		for _, series := range family.GetMetric() {
			value := series.GetCounter().GetValue() + series.GetGauge().GetValue()
			if family.GetName() != row.Name || value == 0 {
				continue
			}
			label := ""
			for _, one := range series.GetLabel() {
				if label = one.GetValue(); !row.Allows(one.GetName(), label) {
					w.t.Errorf("%s has %s=%q, which the table has not", row.Name, one.GetName(), label)
				}
			}
			found[label] = value
		}
	}
	return found
}

func TestWhatBecameOfEachRequestIsCounted(t *testing.T) {
	w := newWorld(t)
	token := w.token(nil)
	begun, _ := w.ask("POST", "/v2/"+own+"/blobs/uploads/", token, nil)
	w.ask("PATCH", begun.Header.Get("Location"), token, strings.NewReader("12345"))
	if got := w.told(telemetry.MirrorCommitUploads); got[""] != 1 {
		t.Errorf("under way: %v", got)
	}
	w.ask("GET", "/v2/", "no token", nil)
	w.ask("PUT", "/v2/commits/bob/x/manifests/1", token, strings.NewReader("{}"))
	w.ask("GET", "/v2/_catalog", token, nil)
	w.ask("PATCH", "/v2/"+own+"/blobs/uploads/"+known, token, strings.NewReader("more"))
	w.ask("PUT", "/v2/"+own+"/manifests/1", token, strings.NewReader(strings.Repeat(" ", maxManifest+1)))
	for range mostOfToken {
		w.gate.uploads.begin("full", own)
	}
	w.ask("POST", "/v2/"+own+"/blobs/uploads/", w.token(jwt.MapClaims{"jti": "full"}), nil)
	w.interfere(func(answer http.ResponseWriter, _ *http.Request) bool {
		answer.WriteHeader(http.StatusForbidden)
		return true
	})
	w.ask("GET", "/v2/"+own+"/manifests/1", token, nil)
	w.behind.Close()
	w.ask("GET", "/v2/"+own+"/manifests/1", token, nil)
	want := map[string]float64{
		passed: 2, unauthorized: 1, denied: 1, unsupported: 1, unknown: 1, large: 1, busy: 1, account: 1, away: 1,
	}
	if got := w.told(telemetry.MirrorCommitRequests); !maps.Equal(got, want) {
		t.Errorf("%v instead of %v", got, want)
	}
	if got := w.told(telemetry.MirrorCommitSentBytes)[""]; got < 5 {
		t.Errorf("%v bytes were sent", got)
	}
}

func TestAnUploadThatIsOverIsNotUnderWay(t *testing.T) {
	w := newWorld(t)
	number, _ := w.gate.uploads.begin("one", own)
	w.gate.uploads.end(number)
	if got := w.told(telemetry.MirrorCommitUploads); len(got) != 0 {
		t.Error(got)
	}
}
