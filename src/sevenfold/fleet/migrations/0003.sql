-- How many texts the guard holds on each machine: their number alone, as they are no memories of the fleet.
alter table sevenfold.machine add column held int not null default 0;
