// Package page holds no code, only the test of the control listener's page in a real browser.
package page
