# Process 1 once the host's root is mounted: sets the machine up and runs what the host asks for by a line on the second
# serial port: the name of a folder jobs/NAME of the share with the script `command`. The job's output and exit status
# become files there, and the line `done NAME` says so.
exec < /dev/null > /dev/console 2>&1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run/home TMPDIR=/run/tmp LANG=C.UTF-8
# Open for as long as the machine runs: what arrives while nobody has it open is lost.
exec 3<> /dev/ttyS1
stty raw -echo <&3
ulimit -l unlimited
ulimit -c 0
if ! (set -e; . /run/share/setup.sh); then
  echo failed >&3
fi

run_job() {
  job="/run/share/jobs/$1"
  setsid sh "$job/command" > "$job/output" 2>&1 3>&-
  echo "$?" > "$job/status"
  echo "done $1" >&3
}

echo ready >&3
while read -r name; do
  if [ "$name" = off ]; then
    echo o > /proc/sysrq-trigger
  else
    run_job "$name" &
  fi
done <&3
