#!/usr/bin/env bash
# A SLURM of one node on this machine, for tests: from Debian's packages, as root, without cgroups.
#
#   tests/cluster/slurm.sh install         the packages (apt-get); nothing else installs anything
#   tests/cluster/slurm.sh start FOLDER    munged, slurmctld and slurmd, with all they write in FOLDER
#   tests/cluster/slurm.sh stop FOLDER     end what `start FOLDER` began
#
# Its commands find it by SLURM_CONF=FOLDER/slurm.conf.
set -euo pipefail

packages=(munge slurmctld slurmd slurm-client)
daemons=(munged slurmctld slurmd)

die() { echo "slurm.sh: $*" >&2; exit 1; }

install() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  # The packages' own services stay off: this SLURM has its own configuration.
  apt-get install -q -y --no-install-recommends -o Dpkg::Options::=--force-confold "${packages[@]}"
}

start() {
  local folder=$1 host cores memory
  [[ $(id -u) == 0 ]] || die "the daemons run as root"
  for name in "${daemons[@]}" sbatch srun squeue; do
    command -v "$name" >/dev/null || die "there is no $name: tests/cluster/slurm.sh install"
  done
  mkdir -p "$folder"/{state,spool,log}
  host=$(hostname -s)
  # More cores than there may be: how many parts train at a time is not what is tested.
  cores=4
  memory=$(( $(getconf _PHYS_PAGES) * $(getconf PAGE_SIZE) / 1048576 ))
  head -c 1024 /dev/urandom > "$folder/munge.key"
  chmod 600 "$folder/munge.key"
  cat > "$folder/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CryptoType=crypto/munge
SlurmctldPort=${SLURM_TEST_PORT:-26817}
SlurmdPort=$(( ${SLURM_TEST_PORT:-26817} + 1 ))
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
MpiDefault=none
JobRequeue=1
SchedulerParameters=requeue_setup_env_fail,sched_interval=5
OverTimeLimit=0
KillWait=5
MinJobAge=3600
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cores RealMemory=$memory State=UNKNOWN
PartitionName=low Nodes=$host Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=high Nodes=$host MaxTime=INFINITE State=UP PriorityTier=2
CONF
  export SLURM_CONF="$folder/slurm.conf"
  munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munged.pid" --log-file="$folder/log/munged.log" --seed-file="$folder/munge.seed"
  slurmctld -c
  slurmd -c
  for _ in $(seq 60); do
    if sinfo --noheader --format %T 2>/dev/null | grep -q idle; then
      return
    fi
    sleep 0.5
  done
  tail -n 20 "$folder"/log/*.log >&2
  die "its node does not come up"
}

stop() {
  local folder=$1 pid
  export SLURM_CONF="$folder/slurm.conf"
  scancel --signal=KILL --user=root 2>/dev/null || true
  for name in slurmd slurmctld munged; do
    if [[ -f $folder/$name.pid ]]; then
      pid=$(cat "$folder/$name.pid")
      kill "$pid" 2>/dev/null || true
      for _ in $(seq 50); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
      done
      kill -9 "$pid" 2>/dev/null || true
    fi
  done
}

case ${1:-} in
  install) install ;;
  start | stop) [[ -n ${2:-} ]] || die "give a folder"; "$1" "$(realpath -m "$2")" ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
