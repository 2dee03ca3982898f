package collector

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestABadSettingIsNamedWithItsValueAndItsRule(t *testing.T) {
	right := map[string]string{"TLS_FOLDER": t.TempDir(), "CLIENT": "control-plane", "FOLDER": t.TempDir()}
	for variable, value := range map[string]string{
		"": "", "LISTEN": "5446", "TLS_FOLDER": "/nowhere", "FOLDER": "/nowhere", "CLIENT": "-",
		"CAPACITY_BYTES": "100Gi", "SETTLE_MS": "x",
	} {
		settings, err := ReadSettings(func(name string) (string, bool) {
			name = strings.TrimPrefix(name, prefix)
			if name == variable {
				return strings.TrimPrefix(value, "-"), true
			}
			return right[name], true
		})
		var wrong *SettingError
		if variable == "" {
			if err != nil || settings.Usual != Usual || settings.Urgent != Urgent {
				t.Errorf("%+v, %v", settings, err)
			}
		} else if !errors.As(err, &wrong) || wrong.Variable != prefix+variable || wrong.Rule == "" {
			t.Errorf("%s: %v", variable, err)
		}
	}
}

func TestTimesMayBeSet(t *testing.T) {
	set := map[string]string{"TLS_FOLDER": t.TempDir(), "CLIENT": "c", "FOLDER": t.TempDir(), "SETTLE_MS": "100"}
	settings, err := ReadSettings(func(name string) (string, bool) {
		value, there := set[strings.TrimPrefix(name, prefix)]
		return value, there
	})
	if err != nil || settings.Urgent.Settle != 100*time.Millisecond || settings.Urgent.Young != Urgent.Young {
		t.Errorf("%+v, %v", settings, err)
	}
}
