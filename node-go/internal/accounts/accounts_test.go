package accounts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"
)

func folders(t *testing.T, passwords map[string]string) (string, string) {
	t.Helper()
	from, to := t.TempDir(), t.TempDir()
	for account, password := range passwords {
		if err := os.WriteFile(filepath.Join(from, account), []byte(password), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	return from, to
}

func TestEachAccountIsAloneInItsFileWithAQuickHash(t *testing.T) {
	passwords := map[string]string{"push": strings.Repeat("a", 40), "pull": strings.Repeat("b", 40)}
	from, to := folders(t, passwords)
	for range 2 {
		if err := Write(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for account, file := range map[string]string{"push": "htpasswd", "pull": "readers"} {
		line, err := os.ReadFile(filepath.Join(to, file))
		if err != nil {
			t.Fatal(err)
		}
		name, hash, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), ":")
		if name != account || strings.Contains(hash, "\n") {
			t.Errorf("%s has %q", file, line)
		}
		if err := bcrypt.CompareHashAndPassword([]byte(hash), []byte(passwords[account])); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if cost, err := bcrypt.Cost([]byte(hash)); err != nil || cost != bcrypt.MinCost {
			t.Errorf("%s: cost %d, %v", file, cost, err)
		}
	}
}

func TestAPasswordThatCouldBeGuessedIsRefused(t *testing.T) {
	from, to := folders(t, map[string]string{"push": "secret", "pull": strings.Repeat("b", 40)})
	if err := Write(from, to); err == nil || !strings.Contains(err.Error(), `account "push" has 6 letters`) {
		t.Errorf("got %v", err)
	}
}

func TestAPasswordThatIsMissingIsNamed(t *testing.T) {
	from, to := folders(t, map[string]string{"push": strings.Repeat("a", 40)})
	if err := Write(from, to); err == nil || !strings.Contains(err.Error(), `account "pull"`) {
		t.Errorf("got %v", err)
	}
}
