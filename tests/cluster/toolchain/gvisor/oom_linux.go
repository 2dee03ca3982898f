// Takes the place of containerd's pkg/sys/oom_linux.go in the shim: writing a score below one's own needs
// CAP_SYS_RESOURCE, which a virtual machine for tests may lack even for root, and the shim would not start.
package sys

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

const (
	OOMScoreAdjMin = -1000
	OOMScoreAdjMax = 1000
)

func AdjustOOMScore(pid, score int) error {
	return SetOOMScore(pid, max(OOMScoreAdjMin, min(OOMScoreAdjMax, score)))
}

func SetOOMScore(pid, score int) error {
	err := os.WriteFile(scoreFile(pid), []byte(strconv.Itoa(score)), 0)
	if os.IsPermission(err) {
		return nil
	}
	return err
}

func GetOOMScoreAdj(pid int) (int, error) {
	text, err := os.ReadFile(scoreFile(pid))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func scoreFile(pid int) string { return fmt.Sprintf("/proc/%d/oom_score_adj", pid) }
