// Package accounts writes the password files of the private registry's processes.
//
// CNCF Distribution takes bcrypt only, and checks it at every request. Helm's `htpasswd` has bcrypt's default cost: 75 ms of
// a core for each request, of which a lazily mounted image makes hundreds. A slow hash keeps passwords that people choose
// from being guessed; these are 40 random letters and digits, and the files stay in the registry's pod. So they are
// hashed at the least cost, by the pod itself, since no template of Helm can.
package accounts

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/crypto/bcrypt"
)

// leastLetters is what a password must have for its hash to be a quick one: more than 128 bits.
const leastLetters = 24

// files has for each account the password file that it is alone in.
var files = map[string]string{"push": "htpasswd", "pull": "readers"}

// Write reads each account's password from a file of its name in one folder, and writes its password file into another.
func Write(from, to string) error {
	for account, file := range files {
		password, err := os.ReadFile(filepath.Join(from, account))
		if err != nil {
			return fmt.Errorf("the password of account %q: %w", account, err)
		}
		password = bytes.TrimSpace(password)
		if len(password) < leastLetters {
			return fmt.Errorf("the password of account %q has %d letters: it must have %d", account, len(password), leastLetters)
		}
		hash, err := bcrypt.GenerateFromPassword(password, bcrypt.MinCost)
		if err != nil {
			return fmt.Errorf("the password of account %q: %w", account, err)
		}
		line := fmt.Sprintf("%s:%s\n", account, hash)
		// A pod that begins anew on its node finds the file that it has written before, and cannot write into it.
		path := filepath.Join(to, file)
		if err := os.WriteFile(path+".new", []byte(line), 0o640); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
	}
	return nil
}
